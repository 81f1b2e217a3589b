"""Whole files of sentences to files of vectors: in blocks that can be shared out, killed and resumed.

    lines -> blocks (blocks.py) -> their vectors (job.py) -> part files (part.py) in OUT.parts/ (folder.py)
          -> OUT (assemble.py, write_*.py)

Where a block begins and ends is decided by the text alone, and a block is embedded from a fresh word cache, so its
bytes depend on nothing outside it: one process, many shards, and a run killed and resumed give the same file.
"""
