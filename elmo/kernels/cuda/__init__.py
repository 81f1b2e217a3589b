"""Triton kernels for the biLM on CUDA GPUs: embedding and training."""
