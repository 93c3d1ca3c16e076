"""``python -m rlflow`` is the command line."""

from __future__ import annotations

from rlflow.cli import main

if __name__ == "__main__":
    main()
