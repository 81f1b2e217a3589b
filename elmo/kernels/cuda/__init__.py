"""The biLM on CUDA GPUs: Triton kernels for embedding and training."""
