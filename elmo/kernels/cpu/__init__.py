"""The biLM on the CPU: compiled kernels (C++ in this folder) and an implementation in PyTorch only."""
