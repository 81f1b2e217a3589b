"""The Penn Treebank's escapes for brackets that are tokens. For snli, sst and sense-tagged texts."""

from __future__ import annotations

PTB_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
