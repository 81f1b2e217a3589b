"""Strings to integers: the first stretch of both data paths, with numpy and the standard library only.

Raw text becomes sentences (`sentences`), tokens with offsets back into the raw text (`tokenize`), character ids
(`chars`) and padded batches (`batch`); `inputs` brings whatever a caller hands over into one form, and `lines` streams
text files. Nothing here imports torch, so a data loader or a server's front end can use it on its own.
"""
