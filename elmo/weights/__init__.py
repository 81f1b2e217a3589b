"""Readers and writers of model files: every published format, detected automatically and read safely."""
