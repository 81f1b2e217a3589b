"""Textual entailment (snli): ESIM."""
