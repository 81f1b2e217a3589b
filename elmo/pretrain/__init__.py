"""Training the language model: corpus -> shards -> batches -> train step -> checkpoint -> export.

The data half (`corpus`, `tally`, `vocabulary`, `preflight`, `prepared`, `shards`, `stream`) needs no torch.
"""
