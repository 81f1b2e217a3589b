"""Measuring and drawing; nothing is fitted here."""
