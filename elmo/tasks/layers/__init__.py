"""Layers that two or more tasks share: tensors in, tensors out."""
