"""A split model at work: requests made up or given, answers compared with the whole's."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlflow.errors import UsageError
from rlflow.specs import check_seconds
from rlflow.splitting.coordinator import Coordinator, Served, stops_of, title_of, whole_stop
from rlflow.splitting.frames import listening, token_of
from rlflow.splitting.host import Held, listen
from rlflow.splitting.manifest import NAME, Manifest, checked_file

__all__ = ["Against", "files_of_split", "hold", "serve_parts", "write_outputs"]

#: Different random requests; more than these are the same again.
_DISTINCT = 4
#: Requests before the clock runs.
_WARM_UP = 4


@dataclass(frozen=True)
class Against:
    """The whole model beside its parts. ``identical``: to the last bit; ``worst``: the largest difference, relative to
    the largest magnitude of its output; ``ratio``: requests a second, parts over whole; ``processor_ratio``: processor
    time of a request, whole over the busiest part, which is the ratio on processors that do nothing else.
    """

    identical: bool
    worst: float
    output: str
    whole: Served
    ratio: float
    processor_ratio: float


def requests_of(manifest: Manifest, count: int, data: Any, dims: Mapping[str, int], seed: int) -> list[dict[str, Any]]:
    """``count`` requests: the given one first, then random ones by ``seed``. Raises UsageError."""
    from rlflow.equivalence import for_single_input, load_input_data, make_inputs
    from rlflow.equivalence.sizes import key, refuse_unknown

    unsent = [info.name for info in manifest.inputs if info.dtype in ("string", "other")]
    if unsent:
        raise UsageError(f"The input {unsent[0]!r} is no tensor of numbers, so it cannot be sent to a worker.")
    axes = [(info.name, axis, dim) for info in manifest.inputs for axis, dim in enumerate(info.shape)]
    refuse_unknown(dims, {key(*one) for one in axes if not isinstance(one[2], int)})
    given = for_single_input(load_input_data(data), manifest.inputs) if data else {}
    whole = set(given) == {info.name for info in manifest.inputs}
    sizes = dict(dims) if given else {**manifest.sizes, **dims}  # the data say what is open
    distinct = [
        make_inputs(manifest.inputs, seed + number, manifest.ranges, given if given and not number else None, sizes)
        for number in range(1 if whole else min(count, _DISTINCT))
    ]
    return [distinct[number % len(distinct)] for number in range(count)]


def serve_parts(
    folder: str | os.PathLike[str],
    *,
    requests: int = 1,
    data: Any = None,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    places: Sequence[tuple[str, int]] = (),
    token_file: str | None = None,
    threads: int = 1,
    pin: bool = False,
    seconds: float = 60.0,
    against: str | os.PathLike[str] | None = None,
) -> tuple[Served, Against | None]:
    """Run ``requests`` through the split model in ``folder``, by processes of this machine or by workers that wait at
    ``places``; beside the whole model, in one process, where ``against`` names it.

    Raises ModelError, UsageError, and :class:`rlflow.splitting.coordinator.WorkerLost`.
    """
    check_seconds(seconds, "The time that a worker may be silent")
    manifest = Manifest.read(folder)
    feeds = requests_of(manifest, requests, data, dims or {}, seed)
    names = [info.name for info in manifest.outputs]
    if places:
        token = token_of(token_file) if token_file else b""
        if not token:
            raise UsageError("Workers on hosts need a token: give --token-file, the same file as at the workers.")
        made = Coordinator.elsewhere(stops_of(manifest), names, places, token, seconds=seconds)
    else:
        stops = stops_of(manifest, os.fspath(folder))
        made = Coordinator.here(stops, names, threads=threads, pin=pin, seconds=seconds)
    with made as coordinator:
        served = _warm(coordinator, feeds)
    if against is None:
        return served, None
    whole = whole_stop(os.fspath(against), manifest)
    with Coordinator.here([whole], names, threads=threads, pin=pin, seconds=seconds) as coordinator:
        other = _warm(coordinator, feeds)
    return served, _compared(other, served)


def _warm(coordinator: Coordinator, feeds: Sequence[dict[str, Any]]) -> Served:
    if len(feeds) > _WARM_UP:
        coordinator.serve(feeds[:_WARM_UP])
    return coordinator.serve(feeds)


def _compared(whole: Served, parts: Served) -> Against:
    identical, worst, place = True, 0.0, ""
    for one, other in zip(whole.outputs, parts.outputs, strict=True):
        for name, ours in one.items():
            theirs = other[name]
            if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
                return Against(False, float("inf"), name, whole, *_ratios(whole, parts))
            if ours.tobytes() == theirs.tobytes():
                continue
            identical = False
            found = _difference(ours, theirs)
            if found >= worst:
                worst, place = found, name
    return Against(identical, worst, place, whole, *_ratios(whole, parts))


def _ratios(whole: Served, parts: Served) -> tuple[float, float]:
    return parts.rate / whole.rate, max(whole.processor) / max(*parts.processor, 1e-12)


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference over the largest magnitude; infinite where other elements are NaN or infinite."""
    if ours.dtype.kind not in "fc":
        return float("inf")
    finite = np.isfinite(ours) & np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return float("inf")
    error = np.abs(ours[finite].astype(np.float64) - theirs[finite].astype(np.float64))
    scale = float(np.abs(ours[finite].astype(np.float64)).max(initial=0.0))
    return float(error.max(initial=0.0)) / (scale or 1.0)


def hold(
    folder: str | os.PathLike[str], number: int, host: str, port: int, token_file: str, *, threads: int, say: Any
) -> None:
    """Be the worker of one part for coordinators on other hosts, until it is interrupted. ``say`` is told who comes."""
    manifest = Manifest.read(folder)
    if not 0 <= number < len(manifest.parts):
        raise UsageError(f"There is no part {number}; the parts are numbered from 0 to {len(manifest.parts) - 1}.")
    token = token_of(token_file)
    held = Held.opened(checked_file(folder, manifest.parts[number]), title_of(manifest, number), threads)
    with listening(host, port) as waiting:
        say(f"{held.title} waits at {host}:{waiting.getsockname()[1]}.")
        listen(waiting, held, token, say)


def files_of_split(folder: str | os.PathLike[str]) -> list[Path]:
    """The files of a split model: its manifest, the parts and their weights. Raises ModelError."""
    manifest = Manifest.read(folder)
    return [Path(folder) / name for name in (NAME, *(name for one in manifest.parts for name in (one.file, *one.data)))]


def write_outputs(path: str | os.PathLike[str], outputs: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name as an .npz file, whole or not at all. Raises OutputError."""
    from rlflow.files import replacing

    with replacing(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, array in outputs.items():  # numpy.savez knows no array that is called "file"
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
