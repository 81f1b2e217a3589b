"""Question answering (squad): BiDAF with self-attention."""
