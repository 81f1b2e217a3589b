"""Batches to a trained model: step, loop, checkpoints, export."""
