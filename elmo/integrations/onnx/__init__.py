"""Export of a biLM to ONNX: the graph, the file, and the check of the file with onnxruntime."""
