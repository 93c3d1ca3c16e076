"""A table of every program's measured time: an engine without a clock, the same on every machine."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlflow.errors import ModelError, UsageError
from rlflow.files import check_readable, parse_json, write_atomically
from rlflow.tuner import kernel_features
from rlflow.tuner.engines import INVALID, Engine, TunedSubgraph
from rlflow.tuner.space_files import plain, read_fields, subgraph_of
from rlflow.tuner.spaces import TensorProgram

_FORM = "rlflow tuner table 2"
#: The largest table: beyond this it cannot have been measured.
_MOST_PROGRAMS, _MOST_BYTES = 1 << 20, 64 << 20


class RecordedEngine:
    """Answers from tables. ``times``: for each subgraph the seconds of all its programs, in the order of
    :meth:`rlflow.tuner.spaces.Space.programs`. ``trial_seconds``: processor time that building and timing one took.
    """

    def __init__(
        self, place: str, subgraphs: Sequence[TunedSubgraph], times: Sequence[np.ndarray], trial_seconds: float
    ) -> None:
        self.place, self._subgraphs, self.trial_seconds = place, tuple(subgraphs), trial_seconds
        self.cpu_seconds = 0.0
        self._times = [
            dict(zip(one.space.programs(), seconds.tolist(), strict=True))
            for one, seconds in zip(subgraphs, times, strict=True)
        ]

    @property
    def subgraphs(self) -> Sequence[TunedSubgraph]:
        return self._subgraphs

    def features(self, subgraph: int, programs: Sequence[TensorProgram]) -> np.ndarray:
        return kernel_features.features(self._subgraphs[subgraph], programs)

    def measure(self, subgraph: int, programs: Sequence[TensorProgram]) -> list[float]:
        self.cpu_seconds += self.trial_seconds * len(programs)
        return [self._times[subgraph][one] for one in programs]

    def only(self, *subgraphs: int) -> RecordedEngine:
        """An engine of those subgraphs alone, which has spent nothing."""
        times = [np.array(list(self._times[number].values())) for number in subgraphs]
        return RecordedEngine(self.place, [self._subgraphs[at] for at in subgraphs], times, self.trial_seconds)

    @property
    def seconds(self) -> Sequence[Mapping[TensorProgram, float]]:
        """Of all programs of each subgraph."""
        return self._times

    def optimum(self, subgraph: int) -> tuple[TensorProgram, float]:
        """The fastest program, and its seconds."""
        return min(self._times[subgraph].items(), key=lambda one: (one[1], one[0]))

    def close(self) -> None:
        """Nothing to end."""

    # --- files ------------------------------------------------------------------------------------------------------

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> RecordedEngine:
        """The table that :func:`record` wrote, or one compressed by gzip, whose name ends in ``.gz``. Raises ModelError
        where it is none, with the reason.
        """
        check_readable(path, "The table", ModelError)
        try:
            content = Path(path).read_bytes()
            return cls._of(parse_json(_unpacked(content) if os.fspath(path).endswith(".gz") else content))
        except (ValueError, UsageError, OSError, EOFError, zlib.error) as error:
            raise ModelError(f"The table {os.fspath(path)!r} cannot be used: {error}") from error

    @classmethod
    def _of(cls, given: Any) -> RecordedEngine:
        kinds: dict[str, type] = {"form": str, "place": str, "trial_seconds": float, "tables": list}
        content = read_fields(given, kinds)
        if content["form"] != _FORM:
            raise ValueError(f"its form is {content['form']!r}; expected {_FORM!r}")
        tables = [read_fields(one, {"subgraph": dict, "nanoseconds": list}) for one in content["tables"]]
        subgraphs = [subgraph_of(one["subgraph"]) for one in tables]
        if sum(one.space.size for one in subgraphs) > _MOST_PROGRAMS:
            raise ValueError(f"it has more than {_MOST_PROGRAMS} programs")
        times = [_seconds(one["nanoseconds"], each) for one, each in zip(tables, subgraphs, strict=True)]
        return cls(content["place"], subgraphs, times, content["trial_seconds"])


def record(
    engine: Engine, path: str | os.PathLike[str], *, batch: int = 32, told: Callable[[int, int], None] | None = None
) -> None:
    """Measure every program of every subgraph, and write the table; ``told``: done and in all, now and then."""
    tables, done = [], 0
    total = sum(one.space.size for one in engine.subgraphs)
    if total > _MOST_PROGRAMS:
        raise UsageError(f"{total} programs are too many for a table; expected at most {_MOST_PROGRAMS}.")
    for number, subgraph in enumerate(engine.subgraphs):
        programs, seconds = list(subgraph.space.programs()), list[float]()
        for begin in range(0, len(programs), batch):
            seconds += engine.measure(number, programs[begin : begin + batch])
            done += len(programs[begin : begin + batch])
            if told is not None:
                told(done, total)
        tables.append({"subgraph": plain(subgraph), "nanoseconds": [_plain_time(one) for one in seconds]})
    content = {
        "form": _FORM, "place": engine.place, "trial_seconds": round(engine.cpu_seconds / max(1, total), 6),
        "tables": tables,
    }  # fmt: skip
    write_atomically(path, json.dumps(content) + "\n")


def _unpacked(content: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
        found = stream.read(_MOST_BYTES + 1)
    if len(found) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES >> 20} MiB")
    return found


def _plain_time(seconds: float) -> int | None:
    return None if seconds == INVALID else round(seconds * 1e9)


def _seconds(given: Any, subgraph: TunedSubgraph) -> np.ndarray:
    if not isinstance(given, list) or len(given) != subgraph.space.size:
        raise ValueError(f"the times of {subgraph.name!r} are not a list of {subgraph.space.size}")
    if not all(one is None or (type(one) is int and 0 < one < 10**15) for one in given):
        raise ValueError(f"a time of {subgraph.name!r} is no positive number of nanoseconds")
    return np.array([math.inf if one is None else one * 1e-9 for one in given])
