"""What timing has in common whatever the runtime: interleaved rounds, samples that are long enough, the processor's
name.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.errors import RuntimeRefused, brief
from rlflow.runtime.messages import FeedSpec, Measurement, ModelIO, Samples, TimingPlan, feeds_from_specs

if TYPE_CHECKING:
    from rlflow.runtime.base import Session
    from rlflow.runtime.session_options import RuntimeOptions

    Opener = Callable[[Any, RuntimeOptions], Session]


#: Where every model takes longer than this, already its first run is a round: the pages and caches that it fills are
#: some per cent of such a run, and the same ones on both sides of a ratio (measured on BERT-base, 270 ms).
LONG_RUN_NS = 100_000_000
#: Models whose run is shorter than this are run once untimed before each sample; to longer ones refilling the caches
#: (tens of megabytes, about a millisecond) means little.
SETTLE_BELOW_NS = 50_000_000


def time_interleaved(
    sessions: Sequence[Session],
    feeds: Sequence[Mapping[str, Any]],
    rounds: int,
    inner: int | None,
    seed: int,
    seconds: float | None,
    min_rounds: int,
    min_sample: float,
    long_rounds: int | None = None,
) -> Samples:
    """Time all models once per round, in a random order per round.

    Within a round every model meets the same state of the machine, so that rounds are pairs; the random order makes
    the models exchangeable within a round where they are equally fast, which is what the significance test assumes.
    ``inner`` runs make one sample; ``None`` chooses, per model, enough of them to fill ``min_sample`` seconds.
    ``seconds`` stops early, after at least ``min_rounds``, or ``long_rounds`` where every run is a long one. What is
    long is said by the clock that decides: beside other programs a run of 10 ms may well last 100.

    A sample shows the model in a loop of its own, as it is deployed: the model before it has left the caches full of
    *its* weights, so a model of short runs first runs once untimed. This is a choice, and it can move a ratio: on a
    decoder step that reads 50 MB of weights, timed both ways in one run, the untimed run took 4 % off the original's
    time and 10 % off its rewritten form's (speed-up 1.26 with it, 1.19 without).
    """
    rng = np.random.default_rng(seed)
    wall, cpu = np.empty((rounds, len(sessions))), np.empty((rounds, len(sessions)))
    done, deadline = 0, None if seconds is None else time.perf_counter() + seconds
    with no_garbage_collection():
        opened = {
            column: _opened(sessions[column], feeds[column]) for column in rng.permutation(len(sessions)).tolist()
        }
        runners = [opened[column][0] for column in range(len(sessions))]
        first = np.array([opened[column][1] for column in range(len(sessions))])
        clocks = [_clock(session) for session in sessions]
        long = all(took[clock] >= LONG_RUN_NS for took, clock in zip(first, clocks, strict=True))
        min_rounds = long_rounds if long and long_rounds is not None else min_rounds
        if inner is None and long and all(_first_counts(one) for one in sessions):
            counts, settles, done = [1] * len(runners), [False] * len(runners), 1
            wall[0], cpu[0] = first.T
        else:
            timed = list(zip(runners, clocks, strict=True))
            counts = [inner or runs_to_fill(runner, min_sample, clock) for runner, clock in timed]
            settles = [_sample(runner, 1)[clock] < SETTLE_BELOW_NS for runner, clock in timed]
        while done < rounds and not (done >= min_rounds and _is_past(deadline)):
            for column in rng.permutation(len(runners)):
                if settles[column]:
                    runners[column]()
                wall[done, column], cpu[done, column] = _sample(runners[column], counts[column])
            done += 1
    return Samples(wall[:done] / 1e6, cpu[:done] / 1e6, tuple(counts))


def _opened(session: Session, feeds: Mapping[str, Any]) -> tuple[Callable[[], None], tuple[float, float]]:
    """A session's runner, and the nanoseconds of the run that making it includes."""
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    runner = session.runner(feeds)
    return runner, (time.perf_counter_ns() - wall, time.process_time_ns() - cpu)


def _clock(session: Session) -> int:
    """The place, in what :func:`_sample` returns, of the clock that decides for a session."""
    return 1 if session.options.effective_clock == "cpu" else 0


def _first_counts(session: Session) -> bool:
    """Whether a first run does what all others do, but for empty caches: no compilation, no tuning."""
    return bool(getattr(session, "first_run_counts", False))


def _is_past(deadline: float | None) -> bool:
    return deadline is not None and time.perf_counter() >= deadline


def measure(
    open_session: Opener,
    source: bytes,
    specs: Mapping[str, Any] | None,
    options: RuntimeOptions,
    timing: TimingPlan,
    reference: Callable[[], None] | None = None,
) -> Measurement:
    """Median and interquartile range of one small model, which ``open_session`` opens.

    ``specs`` ``None`` makes random inputs from the model's own static shapes. ``reference`` is run and timed before
    each sample, and so is the walk through ``timing.flush_bytes`` of memory, where there is one.
    """
    samples: list[float] = []
    beside: list[tuple[float, float, float]] = []
    opened: list[Session] = []
    for number in range(timing.sessions):
        # The last one stays open, so that this one lies elsewhere.
        opened = [*opened[-1:], open_session(source, options)]
        rows = _measure_session(opened[-1], specs, timing.share(number), timing, reference)
        samples += [own for own, _, _ in rows]
        beside += rows if reference is not None and timing.flush_bytes else []
    return summary(samples, beside)


def summary(samples: Sequence[float], beside: Sequence[tuple[float, float, float]] = ()) -> Measurement:
    """The measurement that these milliseconds are."""
    low, median, high = np.percentile(samples, [25, 50, 75])
    return Measurement(float(median), float(high - low), len(samples), tuple(beside))


def _measure_session(
    session: Session,
    specs: Mapping[str, Any] | None,
    repeats: int,
    timing: TimingPlan,
    reference: Callable[[], None] | None,
) -> list[tuple[float, float, float]]:
    """Milliseconds of each sample, and of the reference and the walk through memory before it (0: there is none)."""
    feeds = random_feeds(session, specs, timing.seed)
    once = session.runner(feeds)
    clock = _clock(session)
    flush = np.zeros(timing.flush_bytes // 8) if timing.flush_bytes else None
    inner = 1 if flush is not None else runs_to_fill(once, timing.min_sample, clock)
    rows = []
    with no_garbage_collection():
        for _ in range(repeats):
            computing = walking = 0.0
            if flush is not None:
                if reference is not None:
                    computing = _sample(reference, 1)[clock]
                # Pushes weights, code and results out of the near caches, as the rest of a model does;
                walking = _sample(functools.partial(np.add, flush, 1.0, out=flush), 1)[clock]
                for array in feeds.values():  # its inputs were only just computed
                    array.max(initial=0) if array.dtype.kind in "iuf" else array.any()
            rows.append((_sample(once, inner)[clock] / 1e6, computing / 1e6, walking / 1e6))
    return rows


def random_feeds(session: Session, specs: Mapping[str, Any] | None, seed: int) -> dict[str, Any]:
    """Inputs by ``specs``, or by the model's own static shapes."""
    rng = np.random.default_rng(seed)
    return feeds_from_specs(own_specs(session.io) if specs is None else specs, rng)


def runs_to_fill(once: Callable[[], None], seconds: float, clock: int = 0) -> int:
    """How many runs fill ``seconds`` by the wall clock (0) or the processor's (1); warms the model up on the way."""
    count = 1
    while True:
        elapsed = _sample(once, count)[clock] * count / 1e9
        if elapsed >= seconds:
            # The first runs are slow (pages, caches), so look again with a warm model before settling for few.
            best = min(elapsed, _sample(once, count)[clock] * count / 1e9)
            if best >= seconds:
                return count
            elapsed = best
        count = max(count + 1, min(count * 16, int(count * seconds / max(elapsed, 1e-9) * 1.1) + 1))


def identity_model() -> bytes:
    """``y = Identity(x)`` on one float, written as raw protobuf so that no ONNX library is needed here."""

    def field(number: int, value: int | bytes) -> bytes:
        if isinstance(value, int):
            return bytes([number << 3, value])
        return bytes([number << 3 | 2, len(value)]) + value

    shape = field(2, field(1, field(1, 1)))
    kind = field(2, field(1, field(1, 1) + shape))
    node = field(1, b"x") + field(2, b"y") + field(4, b"Identity")
    graph = field(1, node) + field(2, b"g") + field(11, field(1, b"x") + kind) + field(12, field(1, b"y") + kind)
    return field(1, 8) + field(7, graph) + field(8, field(1, b"") + field(2, 13))


class no_garbage_collection:  # noqa: N801 - reads as a statement
    """Keep Python's collector out of timed loops."""

    def __enter__(self) -> None:
        self._was = gc.isenabled()
        gc.collect()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was:
            gc.enable()


def _sample(once: Callable[[], None], count: int) -> tuple[float, float]:
    """Nanoseconds per run, by the wall and by the processor clock, over ``count`` runs."""
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(count):
        once()
    cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
    return wall / count, cpu / count


def own_specs(io: ModelIO) -> dict[str, FeedSpec]:
    """Random inputs of the model's own static shapes; raises :class:`RuntimeRefused` where it has others."""
    specs = {}
    for info in io.inputs:
        if not info.is_tensor or not all(isinstance(dim, int) for dim in info.shape):
            raise RuntimeRefused(
                f"The input {info.name!r} has no static shape ({info.shape}); say which shape to measure it at."
            )
        specs[info.name] = FeedSpec(tuple(int(dim) for dim in info.shape if isinstance(dim, int)), info.dtype)
    return specs


def peak_memory() -> int | None:
    """The largest resident size of this process so far, in bytes; ``None`` where the system does not say.

    Linux says it of the memory map that ``exec`` made; what getrusage says there begins with the parent's.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text(encoding="utf-8").splitlines()
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), None)
    if sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return None


def cpu_model() -> str:
    """Name of the processor with family, model and widest vector unit: virtual machines hide the name, and kernels
    depend on the unit.
    """
    path = Path("/proc/cpuinfo")
    facts: dict[str, str] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), " ".join(value.split()))
    name = facts.get("model name") or platform.processor() or platform.machine()
    number = f" ({facts['cpu family']}/{facts['model']})" if "cpu family" in facts and "model" in facts else ""
    flags = set(facts.get("flags", facts.get("Features", "")).split())
    unit = next(
        (flag for flag in ("amx_tile", "avx512_vnni", "avx512f", "avx2", "avx", "sve", "asimd") if flag in flags), ""
    )
    return f"{name}{number} {unit}".strip()


def clock_state() -> str:
    """What decides how fast the processor's clock ticks, as far as the operating system says, and how busy it is.

    For people who wonder about a price; empty where nothing is known.
    """
    base = Path("/sys/devices/system/cpu")
    facts = []
    for label, path in (
        ("governor", base / "cpu0/cpufreq/scaling_governor"),
        ("turbo off", base / "intel_pstate/no_turbo"),
        ("boost", base / "cpufreq/boost"),
    ):
        with contextlib.suppress(OSError):
            facts.append(f"{label} {path.read_text(encoding='utf-8').strip()}")
    mhz = _info_value("cpu MHz")
    if mhz is not None:
        facts.append(f"{float(mhz):.0f} MHz")
    if hasattr(os, "getloadavg"):
        facts.append(f"load {os.getloadavg()[0]:.1f}")
    return ", ".join(facts)


def _info_value(wanted: str) -> str | None:
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return None
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == wanted:
            return value.strip()
    return None


def short(error: BaseException, most: int = 400) -> str:
    """An error's text on one line, cut to ``most`` characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return brief(text.removeprefix("[ONNXRuntimeError] : "), most)
