"""Makes a forked child able to embed: torch uses one thread in it.

Called for every embedder, because loading and embedding both start torch's OpenMP threads. These do not exist in a
forked child, which would wait for them forever.
"""

from __future__ import annotations

import functools
import logging
import os

import torch

log = logging.getLogger(__name__)


@functools.cache  # once per process; a forked child inherits it
def prepare_for_fork() -> None:
    """From now on, torch uses one thread in forked children, as it does in the workers of a DataLoader."""
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(after_in_child=_use_one_thread)


def _use_one_thread() -> None:
    if torch.get_num_threads() > 1:
        torch.set_num_threads(1)
        log.info("torch uses one thread in this forked process, because threads do not survive a fork")
