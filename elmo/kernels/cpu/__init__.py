"""The biLM on the CPU: compiled kernels (C++ in this folder) and a version in PyTorch alone."""
