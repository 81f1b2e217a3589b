"""Text to integers: the first step of embedding and of training, with numpy and the standard library only.

Raw text becomes sentences (`sentences`), tokens with offsets into the raw text (`tokenize`), character ids (`chars`)
and padded batches (`batch`). `inputs` converts every accepted kind of input to one form; `lines` streams text files. No
module here imports torch, so a data loader or a server's front end can use this package alone.
"""
