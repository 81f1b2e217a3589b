"""Faster implementations of what `elmo.model` computes: `api` chooses one, `cpu` and `cuda` hold them."""
