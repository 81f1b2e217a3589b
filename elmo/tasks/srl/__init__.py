"""Semantic role labelling (srl): alternating highway LSTMs."""
