"""Vectors and scores for a caller: text in, arrays out, the caller's order kept."""
