"""`python -m elmo` is the `elmo` command."""

from __future__ import annotations

from elmo.cli.main import main

if __name__ == "__main__":
    main()
