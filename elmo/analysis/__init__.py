"""Measurements on the vectors of a model: neighbours, word senses, geometry; nothing is trained here."""
