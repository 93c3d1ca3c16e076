"""What a node under construction would like its operands to be."""

from __future__ import annotations

from typing import NamedTuple


class GiveUp(Exception):  # noqa: N818 - a draw that came to nothing
    """This draw cannot be completed; try another."""


class Want(NamedTuple):
    """A parent's wish for an operand; it may come out otherwise. ``index_below``: an integer index below this."""

    shape: tuple[int, ...] | None = None
    rank: int | None = None
    dtype: int | None = None
    index_below: int | None = None
    least_rank: int = 0


ANY = Want()
