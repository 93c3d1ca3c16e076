"""Buffers in one block of memory that is as small as a search finds: a plan for arenas that are laid out ahead of time.

ONNX Runtime lays its buffers out one after the other and never looks back; a device with a fixed arena can have a
better plan. Finding the smallest block is NP-hard (dynamic storage allocation); the core's search is exact where it
ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlflow._core import pack_buffers
from rlflow.errors import UsageError
from rlflow.footprint.lifetimes import ALIGNMENT, Buffer

__all__ = ["Arena", "arena_of", "offsets_within"]

#: Partial packings that are looked at for one size of block, and steps of the search in all of them: one looks at every
#: buffer's whole life.
_MOST, _STEPS = 200_000, 200_000_000
_SIZES_TRIED = 7


@dataclass(frozen=True)
class Arena:
    """``size``: bytes of the block; ``bound``: bytes that no block is below, the most that is alive at once;
    ``buffers``: at their places.
    """

    size: int
    bound: int
    buffers: tuple[Buffer, ...]


def offsets_within(
    begin: Sequence[int], end: Sequence[int], size: Sequence[int], capacity: int, most: int = 20_000_000
) -> tuple[np.ndarray | None, bool]:
    """(offsets int64 [n], whether there certainly are none): of buffers alive in [begin, end) in ``capacity`` bytes;
    ``None`` where ``most`` partial packings did not lead to any. Raises UsageError for a buffer without size or life.
    """
    if not len(begin) == len(end) == len(size):
        raise UsageError(f"Packing buffers: {len(begin)} begins, {len(end)} ends and {len(size)} sizes.")
    found, exhausted, _ = pack_buffers(begin, end, size, capacity, most)
    return found, exhausted


def arena_of(buffers: Sequence[Buffer], most: int = _MOST) -> Arena:
    """The smallest block that is found for ``buffers``: their present one at most."""
    begin, end = [one.first for one in buffers], [one.last + 1 for one in buffers]
    units = [-(-one.size // ALIGNMENT) for one in buffers]
    filled = [number for number, unit in enumerate(units) if unit]
    bound = _most_alive([(begin[k], end[k], units[k]) for k in filled])
    size = max(((one.offset + one.size + ALIGNMENT - 1) // ALIGNMENT for one in buffers), default=0)
    best = [one.offset for one in buffers]
    low, tried = bound, bound
    most = max(1, min(most, _STEPS // max(1, sum(end[k] - begin[k] for k in filled))))
    for _ in range(_SIZES_TRIED):
        if tried >= size:
            break
        spans = [[ones[k] for k in filled] for ones in (begin, end, units)]
        found, _ = offsets_within(spans[0], spans[1], spans[2], tried, most)
        if found is None:
            low = tried + 1
        else:
            size = tried
            for k, offset in zip(filled, found.tolist(), strict=True):
                best[k] = offset * ALIGNMENT
        tried = (low + size) // 2
    placed = tuple(one._replace(offset=offset) for one, offset in zip(buffers, best, strict=True))
    return Arena(size * ALIGNMENT, bound * ALIGNMENT, placed)


def _most_alive(spans: Sequence[tuple[int, int, int]]) -> int:
    changes: dict[int, int] = {}
    for begin, end, size in spans:
        changes[begin] = changes.get(begin, 0) + size
        changes[end] = changes.get(end, 0) - size
    live = most = 0
    for time in sorted(changes):
        live += changes[time]
        most = max(most, live)
    return most
