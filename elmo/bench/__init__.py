"""How fast embedding is on this machine: every path side by side, the limit, how cost grows. Behind `elmo bench`."""
