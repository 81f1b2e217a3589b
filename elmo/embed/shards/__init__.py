"""Bulk embedding of many files into a folder of Parquet shards, in one process or by the workers of a cluster.

    files -> their rows and shards (source_file.py, plan.py) -> one Parquet file per shard (worker.py)
          -> _manifest.json (job.py)

A shard is a fixed number of consecutive rows of one input file, so that its name and its bytes depend on the input, the
model and the settings alone. A shard is written under another name and then renamed: it is complete or it is not there.
Whoever computes a shard a second time writes the same bytes, so that a killed worker or a repeated command loses
nothing and writes nothing twice.
"""
