"""Which models the CUDA implementations support: each check returns the reason against a model, or None.

The lookup (`elmo.kernels.api`) asks these checks. They need neither Triton nor a GPU.
"""

from __future__ import annotations

from elmo.model.bilm import BiLM

MOST_WINDOWS = 256  # `char_cnn` stores the position of each filter's strongest window in 8 bits


def all_models(model: BiLM) -> str | None:
    """For implementations without limits."""
    return None


def projected_lstms(model: BiLM) -> str | None:
    """The fused LSTM (`lstm`) multiplies by a projection matrix in every layer."""
    return None if model.config.lstm.projects else "the fused LSTM needs a projection, and this model has none"


def short_tokens(model: BiLM) -> str | None:
    """The character convolutions (`char_cnn`) support a limited number of windows per token."""
    chars = model.config.chars
    if chars is None:
        return None
    num_windows = chars.max_chars - min(width for width, _ in chars.filters) + 1
    if num_windows <= MOST_WINDOWS:
        return None
    return f"a token of {chars.max_chars} characters has {num_windows} windows, and the kernel takes {MOST_WINDOWS}"
