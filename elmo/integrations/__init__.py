"""Adapters to other libraries and formats, each behind an extra; only commands import them."""
