"""Bulk embedding of files of sentences into files of vectors, in blocks that can be split over processes and resumed.

    lines -> blocks (blocks.py) -> their vectors (job.py) -> part files (part_file.py) in OUT.parts/ (part_folder.py)
          -> OUT (assemble.py, write_*.py)

The text alone decides where a block begins and ends, and each block is embedded with an empty word cache, so the bytes
of a block depend on nothing outside it: one process, several shards, and a killed and resumed run give the same file.
"""
