"""The network: ids in, tensors out. No strings, no files, no memory of the last call."""
