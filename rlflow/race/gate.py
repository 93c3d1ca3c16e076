"""The final gate: is one of the candidates really faster than the baseline, end to end, in the deployment runtime?

Two sources of luck are shut out. *Choosing* the best of several candidates on a sample flatters it, so the winner is
chosen on one sample and judged on fresh ones. And *opening* a session decides where its weights and buffers lie: two
sessions of one and the same model differ by half a per cent to several per cent for as long as they live (measured;
the smaller and more memory-bound the model, the more), so that thousands of rounds in one pair of sessions would find
a "significant" difference between equals. The unit of evidence is therefore a *block*: new process, new sessions,
some interleaved rounds, reduced to the median of the paired log ratios.

What a comparison may take is said in :class:`rlflow.race.track.Terms`, how blocks decide in
:mod:`rlflow.race.sequential`: they are added until a claim is made and its figure is sharp, or it is hopeless, or the
time is spent. A comparison is kept (:mod:`rlflow.race.evidence`): one that was finished is repeated after a few fresh
blocks that do not contradict it, one that was left undecided is gone on with.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlflow.errors import BudgetError, UsageError
from rlflow.price.command import CommandSampler, DeviceCommand
from rlflow.price.sampler import LazySource, WorkerSampler, made
from rlflow.race.contest import Contest
from rlflow.race.decision import GateDecision
from rlflow.race.evidence import Evidence, Memory
from rlflow.race.sequential import CLEAR_BLOCKS, LEAST_BLOCKS, MOST_BLOCKS
from rlflow.race.track import RaceProgress, Sampler, Terms, Track
from rlflow.runtime import ModelSource, Worker

__all__ = ["CLEAR_BLOCKS", "LEAST_BLOCKS", "MOST_BLOCKS", "GateDecision", "choose", "decide"]

#: Where one block of the selection would take more than this part of the time, there is none: the first candidate, the
#: cheapest, is the only one.
DEAR_SELECTION = 0.15
#: Where making and opening them would take more than this part of the time, there are no more candidates: beside other
#: programs it is seconds for each.
DEAR_OPENING = 0.35


def choose(
    clock: Worker | DeviceCommand,
    baseline: ModelSource,
    candidates: Mapping[str, LazySource],
    feeds: Mapping[str, Any],
    *,
    seconds: float = 20.0,
    at_most: float | None = None,
    for_least: float | None = None,
    reserve: float = 0.0,
    seed: int = 0,
    alpha: float = 0.01,
    beside: Mapping[str, LazySource] | None = None,
    on_progress: Callable[[RaceProgress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    memory: Memory | None = None,
    before_closing: Callable[[GateDecision, Callable[[str, Any], dict[str, Any]]], None] | None = None,
    only: bool = False,
    reopened: bool = False,
) -> GateDecision:
    """Time baseline and candidates by ``clock``, a worker or the command of a device, and decide whether one of them
    replaces the baseline. ``seconds``, ``at_most``, ``for_least``, ``reserve``, ``seed``, ``alpha``, ``only``: see
    :class:`Terms`.

    A candidate is accepted if, on samples that did not choose it, it is faster at the one-sided level ``alpha``. One
    that the runtime refuses, that crashes or hangs, or that returns non-finite values where the baseline returns
    finite ones, is dropped with its sentence. ``reopened``: opening the models takes most of a block, so what it took
    is known before the first one. The models of ``beside`` are timed along with the confirmation, and
    take no part. ``feeds`` are arrays by input name. A model may be a function that makes it when it is loaded first.

    ``on_progress`` is told how far it is after every block. ``stop`` is asked after every block, and between the rounds
    of a device: the decision is then what the blocks so far say. Raises :class:`CostError` where the baseline itself
    cannot be run.
    """
    models = _models(baseline, candidates, beside or {}, seconds)
    started = time.perf_counter()
    with _sampler(clock, models, feeds, stop) as sampler:
        dropped = sampler.screen("baseline", _affordable(seconds), seed)
        terms = Terms(seconds, at_most, for_least, reserve, seed, alpha, only or not sampler.afford_selection)
        alive = [name for name in sampler.names if name not in dropped]
        entrants, extras = _of_kind("candidate", alive), _of_kind("beside", alive)
        track = _track(sampler, "baseline", entrants, extras, dropped, terms, stop, started)
        if reopened:
            track.expect(track.elapsed())
        kept = None if memory is None else _Unprefixed(memory)
        decided = _with_plain_names(Contest(track, terms, on_progress or _unheard, kept).run())
        if before_closing is not None and isinstance(sampler, WorkerSampler):
            before_closing(decided, sampler.run)
    return decided


def _affordable(seconds: float) -> Callable[[float, float], bool]:
    """Whether one more candidate is worth its time: of a block, and of making and opening all of them."""
    return lambda block, opening: block <= DEAR_SELECTION * seconds and opening <= DEAR_OPENING * seconds


def _models(
    baseline: ModelSource, candidates: Mapping[str, LazySource], beside: Mapping[str, LazySource], seconds: float
) -> dict[str, LazySource]:
    """All models under names that say what they are."""
    if not seconds > 0:
        raise BudgetError(f"The time for the final comparison must be above zero seconds, not {seconds!r}.")
    names = ["baseline", *candidates, *beside]
    if len(set(names)) != len(names):
        raise UsageError(
            f"The models to time need different names, and none may be called baseline; got {', '.join(names)}."
        )
    return {"baseline": baseline, **_prefixed("candidate", candidates), **_prefixed("beside", beside)}


def _sampler(
    clock: Worker | DeviceCommand,
    models: Mapping[str, LazySource],
    feeds: Mapping[str, Any],
    stop: Callable[[], bool] | None,
) -> WorkerSampler | CommandSampler:
    if isinstance(clock, DeviceCommand):
        return CommandSampler(clock, {name: made(source) for name, source in models.items()}, stop)
    return WorkerSampler(clock, models, feeds)


def decide(
    sampler: Sampler,
    baseline: str,
    candidates: Sequence[str],
    *,
    seconds: float,
    seed: int,
    at_most: float | None = None,
    for_least: float | None = None,
    reserve: float = 0.0,
    alpha: float = 0.01,
    beside: Sequence[str] = (),
    dropped: Mapping[str, str] | None = None,
    on_progress: Callable[[RaceProgress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    started: float | None = None,
    only: bool = False,
    memory: Memory | None = None,
) -> GateDecision:
    """The gate's logic over any sampler; see :func:`choose`. ``started``: when the seconds began to count."""
    terms = Terms(seconds, at_most, for_least, reserve, seed, alpha, only)
    begun = time.perf_counter() if started is None else started
    track = _track(sampler, baseline, candidates, beside, dropped or {}, terms, stop, begun)
    return Contest(track, terms, on_progress or _unheard, memory).run()


def _track(
    sampler: Sampler, baseline: str, candidates: Sequence[str], beside: Sequence[str], dropped: Mapping[str, str],
    terms: Terms, stop: Callable[[], bool] | None, started: float,
) -> Track:  # fmt: skip
    stopped = stop or (lambda: False)
    models = (list(candidates), list(beside), dict(dropped))
    return Track(sampler, baseline, *models, terms.at_most, terms.seed, stopped, started, terms.reserve)


def _unheard(told: RaceProgress) -> None:
    """Nobody listens."""


class _Unprefixed:
    """A memory under the names that the caller gave its candidates."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def recall(self, candidate: str) -> Evidence | None:
        return self._memory.recall(_plain_name(candidate))

    def keep(self, candidate: str, found: Evidence) -> None:
        self._memory.keep(_plain_name(candidate), found)

    def forget(self, candidate: str) -> None:
        self._memory.forget(_plain_name(candidate))


def _plain_name(name: str) -> str:
    return name.split(":", 1)[-1]


def _of_kind(kind: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if name.startswith(f"{kind}:")]


def _prefixed(kind: str, models: Mapping[str, LazySource]) -> dict[str, LazySource]:
    return {f"{kind}:{name}": model for name, model in models.items()}


def _with_plain_names(decision: GateDecision) -> GateDecision:
    values = {key: getattr(decision, key) for key in GateDecision.__dataclass_fields__}
    for key in ("winner", "challenger"):
        values[key] = None if values[key] is None else _plain_name(values[key])
    for key in ("timings", "first_sample", "dropped", "beside"):
        values[key] = {_plain_name(name): value for name, value in values[key].items()}
    return GateDecision(**values)
