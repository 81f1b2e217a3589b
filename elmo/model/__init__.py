"""The network in plain PyTorch: ids in, tensors out. No strings, no files, no state between calls."""
