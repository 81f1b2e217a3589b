"""Executors: they run the network over batches of sentences, each on its own hardware path."""
