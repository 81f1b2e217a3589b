"""Sentiment classification in five classes (sst): biattentive classification network."""
