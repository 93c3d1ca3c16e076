"""How long models take here: side by side, by two clocks, in fresh sessions.

``rlflow bench`` prints what is computed here. All models are timed in turn, in rounds of random order, so that a
machine that slows down slows all of them. A *block* is a new process with new sessions; two sessions of one model
differ by some per cent for as long as they live, so ratios have their intervals over blocks.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.deployment import Deployment, Inputs, open_worker, source_of
from rlflow.equivalence.sizes import require_open
from rlflow.errors import UsageError
from rlflow.frontends import load_model
from rlflow.price.timing import hodges_lehmann, median_interval
from rlflow.specs import check_seconds

if TYPE_CHECKING:
    from rlflow.runtime import Samples, Worker

__all__ = ["Benched", "Latency", "bench"]

#: A ratio has an interval by ranks at 95 % from so many blocks on.
LEAST_BLOCKS = 6
_MOST_ROUNDS = 100_000


@dataclass(frozen=True)
class Latency:
    """Milliseconds of single runs: the median with its 95 % interval, and percentiles of all runs."""

    median: float
    low: float
    high: float
    least: float
    p90: float
    p99: float


@dataclass(frozen=True)
class Benched:
    """One model with so many threads. ``wall`` is the clock on the wall, ``cpu`` the processor time of all threads.

    ``clock`` is the one that ``ratio`` goes by: time of the first model divided by the time of this one (above 1 is
    faster), with its 95 % interval over blocks. ``load_ms``: opening the session, median over blocks.
    """

    model: str
    threads: int
    runs: int
    blocks: int
    wall: Latency
    cpu: Latency
    load_ms: float
    clock: str
    ratio: float
    ratio_ci95: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an end of an interval that is not known is ``None``."""
        found = asdict(self)
        found["ratio_ci95"] = [end if math.isfinite(end) else None for end in self.ratio_ci95]
        for clock in ("wall", "cpu"):
            found[clock] = {key: value if math.isfinite(value) else None for key, value in found[clock].items()}
        return found


def bench(
    models: Sequence[Any],
    *,
    threads: Sequence[int] = (1,),
    seconds: float = 10.0,
    blocks: int = 7,
    warmup: int = 3,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
    input_data: Any = None,
    runtime: str = "onnxruntime",
    provider: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Benched]:
    """Time the models (paths, bytes or messages) interleaved, ``seconds`` for each number of ``threads``.

    Each block runs every model ``warmup`` times untimed first. Inputs are ``input_data`` (as for
    :func:`rlflow.optimize`) or random by ``seed``; ``dims`` are sizes of open dimensions. ``on_progress`` is told how
    many blocks of how many are done.

    Raises :class:`UsageError`, :class:`rlflow.errors.ModelError`, and :class:`rlflow.errors.RuntimeRefused` where one
    of the models does not run.
    """
    check_seconds(seconds, "The time for a benchmark")
    if isinstance(models, (str, bytes, os.PathLike)) or not isinstance(models, Sequence):
        raise UsageError("A benchmark takes a list of models, even of one.")
    if not isinstance(threads, Sequence):
        raise UsageError(f"A benchmark takes a list of numbers of threads, even of one; got {threads!r}.")
    if not models or blocks < 1 or warmup < 0 or not threads:
        raise UsageError(
            f"A benchmark needs models, threads and blocks above zero; got {len(models)} models, {list(threads)} "
            f"threads, {blocks} blocks, {warmup} runs to warm up."
        )
    names = _names(models)
    if dims:
        require_open(dims, [load_model(model) for model in models])
    found: list[Benched] = []
    for number, count in enumerate(threads):
        done, total = number * blocks, len(threads) * blocks

        def told(block: int, done: int = done, total: int = total) -> None:
            if on_progress is not None:
                on_progress(done + block, total)

        with ExitStack() as stack:
            place = Deployment.of(count, runtime, provider, None)
            worker = stack.enter_context(place.worker())
            reference = worker if place.is_default else stack.enter_context(open_worker(count))
            entrants = [_entrant(model, reference, dims or {}, input_data, seed) for model in models]
            taken = list(_blocks(worker, entrants, seconds / blocks, blocks, warmup, seed, told))
            found += _benched(names, count, taken, worker.options.effective_clock)
    return found


def _names(models: Sequence[Any]) -> list[str]:
    """What each is called; the same name twice gets numbers."""
    plain = [str(one) if isinstance(one, (str, os.PathLike)) else f"model {n + 1}" for n, one in enumerate(models)]
    return [name if plain.count(name) == 1 else f"{name} ({n + 1})" for n, name in enumerate(plain)]


def _entrant(model: Any, worker: Worker, dims: Mapping[str, int], data: Any, seed: int) -> tuple[Any, Any]:
    """What the runtime loads, and the inputs."""
    imported = load_model(model)
    source = source_of(imported, model)
    return source, Inputs.of(worker, source, imported.graph, dims, data, seed, usual=0).feeds[0]


def _blocks(
    worker: Worker,
    entrants: Sequence[tuple[Any, Any]],
    seconds: float,
    blocks: int,
    warmup: int,
    seed: int,
    told: Callable[[int], None],
) -> Iterator[tuple[Samples, list[float]]]:
    """The timings of each block, and the seconds of opening each model in it."""
    draws = np.random.default_rng(seed)
    for block in range(blocks):
        worker.restart()
        order = draws.permutation(len(entrants))
        handles = [worker.load(entrants[index][0]) for index in order]
        feeds = [entrants[index][1] for index in order]
        for handle, own in zip(handles, feeds, strict=True):
            for _ in range(warmup):
                worker.run(handle, own)
        limit = worker.time_limit + 2.0 * seconds
        samples = worker.time_interleaved(
            handles,
            feeds,
            rounds=_MOST_ROUNDS,
            inner=1,
            seed=int(draws.integers(1 << 31)),
            seconds=seconds,
            time_limit=limit,
        )
        back = np.argsort(order)
        yield (
            type(samples)(samples.wall_ms[:, back], samples.cpu_ms[:, back], samples.inner),
            [handles[place].load_seconds for place in back],
        )
        for handle in handles:
            worker.unload(handle)
        told(block + 1)


def _benched(
    names: Sequence[str], threads: int, blocks: Sequence[tuple[Samples, list[float]]], clock: str
) -> Iterator[Benched]:
    for column, name in enumerate(names):
        wall = np.concatenate([samples.wall_ms[:, column] for samples, _ in blocks])
        cpu = np.concatenate([samples.cpu_ms[:, column] for samples, _ in blocks])
        logs = [
            float(np.median(np.log(samples.by(clock)[:, 0]) - np.log(samples.by(clock)[:, column])))
            for samples, _ in blocks
        ]
        middle = hodges_lehmann(logs)
        yield Benched(
            name,
            threads,
            int(wall.size),
            len(blocks),
            _latency(wall),
            _latency(cpu),
            1e3 * float(np.median([loads[column] for _, loads in blocks])),
            clock,
            math.exp(middle.value),
            (math.exp(middle.low), math.exp(middle.high)),
        )


def _latency(values: np.ndarray) -> Latency:
    middle = median_interval(values)
    p90, p99 = (float(one) for one in np.percentile(values, [90, 99]))
    return Latency(middle.value, middle.low, middle.high, float(values.min()), p90, p99)
