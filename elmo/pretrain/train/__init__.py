"""Training of a biLM on prepared text: training step, loop, checkpoints and export."""
