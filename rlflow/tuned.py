"""A whole model, tuned: which kernels and which of their parameters are fastest at its nodes, on this machine.

``rlflow tune`` is this. What was measured is kept, so that a tuning that was interrupted goes on; what it found is a
plan in the metadata of a model that stays plain ONNX, as ``rlflow optimize --kernels`` writes it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlflow.crew import Workers
from rlflow.deployment import Inputs, open_worker, source_of, verified
from rlflow.errors import ModelError, OutputError, UsageError
from rlflow.files import check_is_not_read, check_is_text, write_atomically
from rlflow.frontends.generated_sites import FUNCTION
from rlflow.kernels import ALGORITHMS, KEY, Choice, KernelPlan
from rlflow.kernels.generated_code import GeneratedCode
from rlflow.kernels.known_sites import TUNED, FastKernel, site_key
from rlflow.kernels.shared_library import library_path
from rlflow.kernels.site_times import GROWTH
from rlflow.ledger import Ledger
from rlflow.options import check_race_seconds
from rlflow.search import Budget, StopReason, StopToken
from rlflow.tuner import (
    INVALID,
    Engine,
    KernelEngine,
    Records,
    Remembering,
    SharedEngine,
    TensorProgram,
    Tuner,
    TunerConfig,
    TuningRound,
    WarmStart,
    generated_engine,
    method,
)
from rlflow.tuner import unavailable as method_unavailable
from rlflow.tuner.generated_engine import GENERATED, ChosenCode, GeneratedEngine
from rlflow.tuner.program_scores import BoostedTrees
from rlflow.tuner.shared_engine import Measurer
from rlflow.tuner.trial_records import require_trials
from rlflow.tuner.warm_starts import shipped_prior

if TYPE_CHECKING:
    from rlflow.runtime import Worker

__all__ = ["TunedModel", "TunedNodes", "tune"]

#: The runtime's own kernel.
_OWN = TensorProgram(0, ())
#: What is left out: nothing; where outputs differ by too much, what rounds most; then all that rounds more.
_ATTEMPTS = (
    frozenset[str](),
    frozenset(name for name, one in ALGORITHMS.items() if one.coarse),
    frozenset(name for name, one in ALGORITHMS.items() if not one.exact),
)
#: Algorithms whose weights are larger than the model's.
_KEEPING = frozenset(name for name, one in ALGORITHMS.items() if one.keeps_weights)
#: Of a budget of seconds: what the tuning has. The check and the race have the rest; without one, so many seconds.
_TUNING_PART, _CHECK_SECONDS, _RACE_SECONDS = 0.7, 8.0, 20.0
#: The part of it after which no finalist is timed again; what the tuning measured counts then.
_FINALS_PART = 0.8
#: Seconds that the tuning has at least, however long it took to begin.
_LEAST_TUNING = 1.0
#: The race should have this part of the budget; it may have so much, and so many seconds after it, but no longer than
#: so many.
_RACE_PART, _RACE_MOST, _RACE_LATE, _RACE_LONGEST = 0.2, 0.3, 5.0, 90.0
#: How often finalists are timed again, in turn; the part of the runtime's own time that a winner takes at most; and
#: that from which on it is no finalist.
_FINALS, _WORTH, _SLOWER = 3, 0.97, 1.1
#: The files of the folder.
NAMES = MODEL, TRIALS, REPORT, LIBRARY = "model.onnx", "trials.sqlite", "report.json", "kernels.so"


@dataclass(frozen=True)
class TunedNodes:
    """What was found for nodes that are alike. ``own_us``, ``best_us``: microseconds of all of them together, by the
    runtime's own kernel and by the fastest program; ``algorithm`` ("" is the runtime's own) and its ``tuning``.
    """

    nodes: tuple[str, ...]
    own_us: float
    best_us: float
    algorithm: str
    tuning: Mapping[str, int]


@dataclass(frozen=True)
class TunedModel:
    """``model``: the path that was written; ``speedup``: of the whole model, with its interval, ``None`` where there is
    no plan; ``note``: why, or what the plan does. ``trials``: programs timed, of which ``remembered`` were known.
    ``library``: the path of the generated code that the plan describes, where it has some.
    """

    model: str
    speedup: float | None
    interval: tuple[float, float] | None
    note: str
    method: str
    trials: int
    remembered: int
    stop: str
    nodes: tuple[TunedNodes, ...]
    library: str | None = None


def tune(
    model: Any,
    output: str | os.PathLike[str],
    *,
    budget: Budget | str = "5m",
    by: str = "harl",
    seed: int = 0,
    threads: int = 1,
    dims: Mapping[str, int] | None = None,
    input_data: Any = None,
    gate_seconds: float | None = None,
    on_round: Callable[[TuningRound, str], None] | None = None,
    stop: StopToken | None = None,
    workers: Workers | str = "0",
    generate: bool = False,
) -> TunedModel:
    """Tune the kernels of a model (a path, bytes or a message) and write the folder ``output``: the model with a plan,
    the trials, a report. A folder with trials is gone on with.

    ``by``: a method of :data:`rlflow.tuner.METHODS`. ``gate_seconds``: for the final comparison, whatever the budget
    is. ``on_round`` hears of each round, and the name of its nodes.
    ``workers``: who measures (:class:`rlflow.crew.Workers`); they have to be machines like this one, which checks and
    races the result.
    ``generate``: also try code that TVM generates, which the folder gets as a library where it wins.
    Raises UsageError where the method or the kernels cannot be used here, CostError where no kernel has a place in the
    model, ModelError and OutputError.
    """
    config, limits, began = _config(by, generate), Budget.parse(budget), time.monotonic()
    check_race_seconds(gate_seconds)
    _check_output(output, model)
    crew = Workers.parse(workers) if isinstance(workers, str) else workers
    _check(by, config, limits)
    if generate:
        _check_generation(threads, crew)
    from rlflow.frontends import blocked, load_model

    imported = load_model(model)
    source = source_of(imported, model)
    with _folder(output) as folder:
        with open_worker(threads) as worker:
            inputs = Inputs.of(worker, source, imported.graph, dims or {}, input_data, seed)
        whole = blocked.whole(source)
        make = partial((GeneratedEngine if generate else KernelEngine).of, whole, inputs.feeds[0], threads)
        with closing(make()) as engine, closing(Records(folder / TRIALS)) as log, _shared(engine, crew, make) as shared:
            remembering = Remembering(shared, log)
            told = None if on_round is None else lambda done: on_round(done, engine.subgraphs[done.subgraph].name)
            search = _of_tuning(limits, time.monotonic() - began)
            tuner = Tuner(remembering, config, seed, WarmStart(shipped_prior(engine.subgraphs)))
            found = tuner.run(search, told, stop)
            how = (limits.seconds, gate_seconds, folder / LIBRARY, began)
            ends = _Ends(whole, engine, tuner, inputs, threads, seed, *how)
            finals, plan, interval, note = ends.planned()
        library = _settled(folder, plan)
        write_atomically(folder / MODEL, blocked.with_metadata(whole, KEY, None if plan is None else plan.text()))
        result = TunedModel(
            os.fspath(folder / MODEL), None if plan is None else plan.speedup, interval, note, by, found.trials,
            remembering.read, str(found.stop), tuple(finals), library,
        )  # fmt: skip
        write_atomically(folder / REPORT, json.dumps(asdict(result), indent=1) + "\n")
        return result


def _of_tuning(limits: Budget, begun: float) -> Budget:
    """The tuning's part of the budget, which began so many seconds ago."""
    if limits.seconds is None:
        return limits
    return replace(limits, seconds=max(_TUNING_PART * limits.seconds - begun, _LEAST_TUNING))


def _config(by: str, generate: bool) -> TunerConfig:
    """The method; generated code is judged by trees as well, where they are installed."""
    config = method(by)
    return replace(config, cost="both") if generate and BoostedTrees.available() is None else config


def _check(by: str, config: TunerConfig, limits: Budget) -> None:
    reason = method_unavailable(config)
    if reason is not None:
        raise UsageError(f"The method {by!r} cannot be used here: {reason}. The method 'evolutionary' needs nothing.")
    if limits.seconds is None and limits.measurements is None:
        raise UsageError(f"The budget {limits} limits neither time nor measurements; give 5m or 200meas, for instance.")


def _check_generation(threads: int, crew: Workers) -> None:
    reason = generated_engine.unavailable()
    if reason is not None:
        raise UsageError(f"Code cannot be generated here: {reason}.")
    if threads != 1 or not crew.alone:
        raise UsageError("Generated code uses one thread, and is measured here: leave --threads and --workers out.")


def _settled(folder: Path, plan: KernelPlan | None) -> str | None:
    """The path of the library that the plan describes, in a folder that nobody else may write to; no other stays."""
    path = folder / LIBRARY
    if plan is None or plan.generated is None:
        path.unlink(missing_ok=True)
        return None
    folder.chmod(folder.stat().st_mode & 0o7755)
    return os.fspath(path)


@contextmanager
def _shared(engine: KernelEngine, workers: Workers, make: Callable[..., KernelEngine]) -> Iterator[Engine]:
    """The engine, or one whose programs workers measure."""
    if workers.alone:
        yield engine
        return
    crew = workers.crew(partial(Measurer, partial(make, like=engine.sites)))
    with closing(SharedEngine(engine, crew)) as shared:
        yield shared


def interrupted(result: TunedModel) -> bool:
    """Whether somebody asked for the end."""
    return result.stop == str(StopReason.INTERRUPTED)


def _check_output(output: str | os.PathLike[str], model: Any) -> None:
    if not os.fspath(output):
        raise UsageError("The name of the output is empty; give the name of a folder.")
    check_is_text(output)
    if isinstance(model, (str, os.PathLike)):
        for name in NAMES:
            check_is_not_read(Path(output) / name, model)
    require_trials(Path(output) / TRIALS)


@contextmanager
def _folder(output: str | os.PathLike[str]) -> Iterator[Path]:
    """The folder of the results, which is made where it is not there, and goes again where nothing came into it."""
    folder = Path(output)
    try:
        made = [one for one in (folder, *folder.parents) if not one.exists()]
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"The folder {folder} cannot be made: {error.strerror or error}.") from error
    try:
        yield folder
    except BaseException:
        with suppress(OSError):  # it is not empty: what was measured stays
            for one in made:
                one.rmdir()
        raise


class _Way(NamedTuple):
    """A model with kernels, and the choices that make it."""

    model: bytes
    choices: tuple[Choice, ...]
    code: GeneratedCode | None = None

    @property
    def kernels(self) -> dict[str, tuple[str, dict[str, int]]]:
        """What does each node."""
        return {one.node: (one.algorithm, dict(one.tuning)) for one in self.choices}


@dataclass
class _Ends:
    """From what was measured to a plan: are the outputs near enough, and is the whole model faster? The kernels of a
    plan that the model came with take part, and stay where they are faster.
    """

    source: bytes
    engine: KernelEngine
    tuner: Tuner
    inputs: Inputs
    threads: int
    seed: int
    seconds: float | None
    gate_seconds: float | None = None
    library: Path = Path(LIBRARY)
    began: float = field(default_factory=time.monotonic)
    _programs: dict[int, TensorProgram] = field(default_factory=dict)  # of the groups that generated code does

    def planned(self) -> tuple[list[TunedNodes], KernelPlan | None, tuple[float, float] | None, str]:
        """The fastest kernels; the plan or ``None``, the interval of what it gains, and a sentence."""
        from rlflow.runtime import RuntimeOptions, Worker

        why = "ONNX Runtime's own kernels are as fast"
        finals: list[TunedNodes] = []
        with Worker(RuntimeOptions(threads=self.threads, library=library_path())) as worker:
            earlier = self._earlier(worker)
            for left_out in self._attempts():
                finals = self._finals(left_out)
                self._fit_into_memory(finals, left_out)
                choices, code = self._choices(finals), self._code(finals)
                if not choices and code is None:
                    break
                attributes = {one.node: one.attributes for one in choices}
                if code is not None:
                    attributes |= {one.node: {FUNCTION: one.function} for one in code.choices}
                    worker.options = replace(worker.options, generated=os.path.abspath(self.library))
                model = self.engine.graph.with_kernels(attributes)
                difference = self._difference(model, worker)
                if difference is None:
                    self._remember(finals)
                    return finals, *self._raced(_Way(model, choices, code), earlier, worker)
                why = f"the outputs differ by more than the model's own noise allows ({difference})"
            if earlier is not None:
                return finals, *self._raced(None, earlier, worker)
        return finals, None, None, f"There is no plan: {why}."

    def _earlier(self, worker: Worker) -> _Way | None:
        """The kernels that the model came with, as far as they fit and compute the same; what may have been edited into
        no plan at all is none.
        """
        from rlflow.runtime import interface

        text = interface.metadata_entry(self.source, KEY)
        try:
            plan = None if text is None else KernelPlan.parse(text)
            known = {site.name: site for site in self.engine.graph.sites()} if plan is not None else {}
            there = (one for one in (plan.choices if plan is not None else ()) if one.node in known)
            choices = tuple(one for one in there if one.fits(known[one.node].kind, known[one.node].sizes))
            if not choices:
                return None
            model = self.engine.graph.with_kernels({one.node: one.attributes for one in choices})
        except ModelError:
            return None
        return _Way(model, choices) if self._difference(model, worker) is None else None

    def _attempts(self) -> Sequence[frozenset[str]]:
        """The names of the algorithms that are left out, one attempt after another."""
        generates = isinstance(self.engine, GeneratedEngine)
        return (*_ATTEMPTS, *([_ATTEMPTS[-1] | {GENERATED}] if generates else []))

    def _code(self, finals: list[TunedNodes]) -> GeneratedCode | None:
        """The library of the generated code that was chosen."""
        chosen = [
            ChosenCode(number, self._programs[number], round(one.own_us / one.best_us, 3))
            for number, one in enumerate(finals)
            if one.algorithm == GENERATED
        ]
        if not chosen or not isinstance(self.engine, GeneratedEngine):
            return None
        return self.engine.write_library(self.library, chosen)

    def _fit_into_memory(self, finals: list[TunedNodes], inexact: frozenset[str]) -> None:
        """Weights stay transformed where that saves most a byte, until all weights have grown by ``GROWTH``; elsewhere
        another algorithm is taken.
        """
        growth = {
            number: len(group) * ALGORITHMS[one.algorithm].more_bytes(group[0].sizes)
            for number, (one, group) in enumerate(zip(finals, self.engine.groups, strict=True))
            if one.algorithm in _KEEPING
        }
        saved = {number: (finals[number].own_us - finals[number].best_us) / max(growth[number], 1) for number in growth}
        room = GROWTH * self.engine.graph.weight_bytes
        for number in sorted(growth, key=saved.__getitem__, reverse=True):
            if growth[number] <= room:
                room -= growth[number]
            else:
                finals[number] = self._final(number, inexact | _KEEPING)

    def _finals(self, without: frozenset[str]) -> list[TunedNodes]:
        """The final of each group; those first that seem to gain most, because the time may not reach for all."""
        tasks = self.tuner.tasks
        gains = [tasks[number].measured.get(_OWN, 0.0) - task.seconds for number, task in enumerate(tasks)]
        order = sorted(range(len(tasks)), key=gains.__getitem__, reverse=True)
        found = {number: self._final(number, without) for number in order}
        return [found[number] for number in range(len(tasks))]

    def _final(self, number: int, without: frozenset[str]) -> TunedNodes:
        """The runtime's own kernel and a group's best program by another algorithm, timed again in turn; the least of
        each counts. What the tuning measured counts where that was much slower, or the time is over.
        """
        engine, task = self.engine, self.tuner.tasks[number]
        sketches = task.subgraph.space.sketches
        ranked = (one for one in task.ranked() if one != _OWN and sketches[one.sketch].name not in without)
        programs = [_OWN, *([winner] if (winner := next(ranked, None)) is not None else [])]
        known_times = [task.measured.get(one, INVALID) for one in programs]
        own_known = known_times[0] < INVALID
        hopeful = len(programs) > 1 and known_times[1] < _SLOWER * known_times[0]
        times = list[Sequence[float]]()
        while len(times) < _FINALS and (not own_known or (hopeful and not self._late())):
            times.append(engine.measure(number, programs))
        if len(times) < _FINALS:
            times.append(known_times)
        least = [min(column) for column in zip(*times, strict=True)]
        taken = engine.attributes(number, programs[-1]) if least[-1] < _WORTH * least[0] < INVALID else None
        algorithm, tuning = taken or ("", {})
        if algorithm == GENERATED:
            self._programs[number] = programs[-1]
        seconds = least[-1] if taken else least[0]
        names = tuple(site.name for site in engine.groups[number])
        return TunedNodes(names, round(least[0] * 1e6, 1), round(seconds * 1e6, 1), algorithm, tuning)

    def _late(self) -> bool:
        """Whether the finalists' part of the budget is over."""
        return self.seconds is not None and time.monotonic() - self.began > _FINALS_PART * self.seconds

    def _remember(self, finals: list[TunedNodes]) -> None:
        """Let prices with kernels know what is fastest at such nodes (``--cost onnxruntime+kernels``)."""
        place = self.engine.site_place(self.threads)
        for group, shape, one in zip(self.engine.groups, self.engine.sites.shapes, finals, strict=True):
            if one.algorithm == GENERATED:  # it goes with this model alone
                continue
            name = site_key(place, group[0].kind, group[0].sizes, shape)
            Ledger(TUNED).keep(name, FastKernel(one.algorithm, dict(one.tuning)))

    def _choices(self, finals: list[TunedNodes]) -> tuple[Choice, ...]:
        return tuple(
            Choice(site.name, site.sizes, one.algorithm, round(one.own_us / one.best_us, 3), dict(one.tuning))
            for group, one in zip(self.engine.groups, finals, strict=True)
            for site in group
            if one.algorithm not in ("", GENERATED)
        )

    def _difference(self, model: bytes, worker: Worker) -> str | None:
        from rlflow import equivalence

        seconds = _CHECK_SECONDS if self.seconds is None else min(_CHECK_SECONDS, 0.1 * self.seconds)
        run = equivalence.WorkerRunner(worker)
        found = verified(run, self.inputs, self.source, model, self.seed, seconds=seconds)
        return None if found.passed else (found.failure() or "no reason was given").rstrip(".")

    def _race_time(self) -> dict[str, Any]:
        """Seconds of the race, as :class:`rlflow.race.track.Terms` has them."""
        if self.gate_seconds is not None or self.seconds is None:
            return {"seconds": self.gate_seconds or _RACE_SECONDS}
        seconds = min(_RACE_SECONDS, _RACE_PART * self.seconds)
        return {"seconds": seconds, "at_most": min(_RACE_MOST * self.seconds + _RACE_LATE, _RACE_LONGEST)}

    def _raced(
        self, found: _Way | None, earlier: _Way | None, worker: Worker
    ) -> tuple[KernelPlan | None, tuple[float, float] | None, str]:
        from rlflow.race import gate

        feeds, ways = self.inputs.feeds[0], {} if found is None else {"tuned": found}
        if earlier is not None and (found is None or found.code is not None or earlier.kernels != found.kernels):
            ways["earlier"] = earlier
        how = {**self._race_time(), "seed": self.seed, "only": len(ways) == 1}
        decision = gate.choose(worker, self.source, {name: one.model for name, one in ways.items()}, feeds, **how)
        if decision.winner is None:
            return None, None, f"There is no plan: {decision.reason.rstrip('.')}."
        _, choices, code = ways[decision.winner]
        speedup, version = round(float(decision.speedup or 1.0), 4), str(worker.describe()["version"])
        plan = KernelPlan(version, self.engine.graph.block, self.threads, speedup, choices, code)
        note = f"Kernels of ours do {len(choices)} nodes; the plan is in the metadata."
        if decision.winner == "earlier":
            note += " They are those that the model came with: what was found is not faster."
        if code is not None:
            note += f" Generated code does {len(code.choices)} where a session names its library."
        return plan, decision.speedup_ci95, note
