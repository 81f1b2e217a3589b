"""Sentiment in five classes: biattentive classification network."""
