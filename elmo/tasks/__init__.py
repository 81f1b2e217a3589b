"""Task models with and without ELMo: read, train, evaluate, predict (paper section 4)."""
