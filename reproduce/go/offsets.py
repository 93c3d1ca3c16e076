"""minimalloc's instances (Apache-2.0): buffers with lifetimes, to be packed into as many bytes as the name says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlflow.footprint.packing import offsets_within


def read_instance(path: Path) -> tuple[list[int], list[int], list[int], int]:
    """(begins, ends, sizes, capacity)."""
    rows = [line.split(",") for line in path.read_text(encoding="utf-8").split()]
    if rows[0] != ["id", "lower", "upper", "size"]:
        raise ValueError(f"{path.name}: the columns are {rows[0]}")
    columns = [[int(row[k]) for row in rows[1:]] for k in (1, 2, 3)]
    return columns[0], columns[1], columns[2], int(path.name.split(".")[1])


def packed(folder: Path) -> Iterator[dict[str, Any]]:
    """A row for each instance."""
    if not folder.is_dir():
        raise SystemExit(f"There is no folder {folder}; get the instances with `make fetch-data`, or leave them out.")
    for path in sorted(folder.glob("*.csv")):
        begin, end, size, capacity = read_instance(path)
        began = time.thread_time()
        offsets, _ = offsets_within(begin, end, size, capacity)
        seconds = time.thread_time() - began
        placed = [] if offsets is None else list(zip(begin, end, size, offsets.tolist(), strict=True))
        yield {
            "kind": "minimalloc", "key": f"minimalloc {path.stem}", "instance": path.stem, "buffers": len(size),
            "capacity": capacity, "packed": offsets is not None and valid(placed, capacity),
            "seconds": round(seconds, 3),
        }  # fmt: skip


def valid(placed: list[tuple[int, int, int, int]], capacity: int) -> bool:
    """Whether all are inside, and no two that are alive together overlap."""
    for number, (begin, end, size, at) in enumerate(placed):
        if at < 0 or at + size > capacity:
            return False
        for other_begin, other_end, other_size, other_at in placed[:number]:
            if begin < other_end and other_begin < end and at < other_at + other_size and other_at < at + size:
                return False
    return True
