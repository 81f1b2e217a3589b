"""The data half of pretraining: text files -> prepared folder -> batches."""
