"""Pretraining of the language model: text -> prepared folder -> batches -> train step -> checkpoint -> exported model.

`data` makes prepared folders and batches and does not import torch; `train` holds the training loop.
"""
