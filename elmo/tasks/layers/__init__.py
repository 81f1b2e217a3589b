"""Layers that several tasks share: functions and modules from tensors to tensors."""
