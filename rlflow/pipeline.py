"""The stages between a model and a faster one.

load → baseline (the imported model, no rewrites) → search → final gate → verification → file and report. Every stage
may end it with one typed exception; the model that was passed in is never changed, and nothing is written unless all
stages agree.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow import search as _search
from rlflow.deployment import (
    Deployment,
    Export,
    Inputs,
    kept_comparisons,
    open_worker,
    runner,
    shared_weights,
    source_of,
    verified,
    with_known_outputs,
)
from rlflow.errors import (
    GraphError,
    ModelError,
    RuntimeCrashed,
    RuntimeRefused,
    RuntimeUnavailable,
    UsageError,
    VerificationFailed,
)
from rlflow.files import replacing, write_atomically
from rlflow.library import for_opset, load_library
from rlflow.report import OutputFigures, Report, RuntimeInfo, Stages, TimeInterval, Verified
from rlflow.search import Budget, InterruptGuard, Problem, Progress, Result, StopReason, StopToken, TraceStep, Visited
from rlflow.search.kept import EarlierSearches, repeatable

if TYPE_CHECKING:
    from onnx import ModelProto

    from rlflow.frontends.storage import SharedWeights
    from rlflow.runtime import Worker

__all__ = ["OptimizeResult", "Pipeline"]


@dataclass(frozen=True)
class OptimizeResult:
    """The optimised model (the original where nothing was gained) and what was done to get it."""

    report: Report
    make: Callable[[], ModelProto] = field(repr=False)

    @functools.cached_property
    def model(self) -> ModelProto:
        """The message; of a large model that was written to a file it is read from there when it is first asked for.

        Raises :class:`ModelError` where that file has gone.
        """
        return self.make()

    @property
    def improved(self) -> bool:
        return self.report.improved


@dataclass
class Pipeline:
    """One optimisation: its options, and the resources that it opens."""

    strategy: _search.Strategy
    budget: Budget
    patience: _search.Patience | None
    fresh: bool
    cost: str | Any
    seed: int
    threads: int
    dims: dict[str, int]
    freeze: dict[str, int]
    input_data: Any
    rules: Any
    verify: bool
    keep_initializer_inputs: bool
    gate_seconds: float | None
    profile_rules: bool
    place: Deployment
    measure: str
    on_progress: Callable[[Progress], None] | None
    on_stage: Stages
    stop: StopToken
    output: Path | None
    notes: list[str] = field(default_factory=list)
    stack: ExitStack = field(default_factory=ExitStack)
    started: float = field(default_factory=time.monotonic)
    worker: Worker | None = None
    reference: Worker | None = None
    inputs: Inputs | None = None
    folder: Path | None = None
    weights: SharedWeights | None = None
    measurements_before: int = 0
    rule_rows: dict[str, dict[str, Any]] | None = None
    replayed: dict[tuple[TraceStep, ...], Any] = field(default_factory=dict)
    statistics: _search.Statistics | None = None
    deployed: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def __enter__(self) -> Pipeline:
        if self.threads < 1:
            raise UsageError(f"The number of threads is {self.threads}; expected at least 1.")
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    # --- stages -------------------------------------------------------------------------------------------------------

    def execute(self, model: Any) -> OptimizeResult:
        """All stages in order."""
        from rlflow.frontends import load_model

        self.cost_model = self._cost_model()
        self.on_stage("loading", "loading the model")
        self.imported = load_model(
            model, keep_initializer_inputs=self.keep_initializer_inputs, freeze=self.freeze or None
        )
        self.model, self.source = model, source_of(self.imported, model)
        self.notes.extend(self.imported.notes)
        if self.imported.passthrough is not None:
            return self._unchanged(self._blank(f"the model is carried through as it came: {self.imported.passthrough}"))
        self._check_dims()
        self._check_weights()
        self.weights = shared_weights(self.imported, self.place, self._folder)
        if self.weights is not None and not self.freeze:
            slim = self.weights.slim(self.imported.origin.model)
            self.source = self.weights.write(slim, "original.onnx")
        self.library, left_out = for_opset(load_library(self.rules), self.imported.origin.opset)
        self.notes.extend(left_out)
        result = self._searched()
        report = self._blank("the search found no cheaper graph", result)
        finalists = [one for one in (result.best, *result.runners_up) if one.cost_ms < result.cost_before_ms]
        entrants = self._entrants(finalists)
        report, winner = self._gate(report, entrants)
        if winner is None:
            return self._unchanged(report)
        return self._changed(replace(report, improved=True), *entrants[winner])

    def _check_dims(self) -> None:
        unknown = sorted(set(self.dims) - set(self.imported.origin.symbols))
        if unknown:
            known = _search.did_you_mean(unknown[0], self.imported.origin.symbols)
            raise UsageError(f"The model has no symbolic dimension {unknown[0]!r} to measure at a size. {known}")

    def _check_weights(self) -> None:
        """Refuse NaN weights: no output could be compared with the original's. Infinite ones (masks) are fine."""
        for name, constant in self.imported.origin.constants.items():
            array = self.imported.constants[constant.digest]
            if array.dtype.kind == "f" and array.size and np.isnan(array.min()):
                raise ModelError(
                    f"While checking the model: the weight '{name}' holds NaN, so its outputs say nothing and no "
                    "result could be compared with the original's; repair the weight, or leave the model as it is."
                )

    def _entrants(self, finalists: Sequence[Visited]) -> dict[str, tuple[Visited, Export]]:
        """The cheapest graphs as ONNX, by a name; one that the model's opset cannot express is left out, and that is
        said.
        """
        entrants = {}
        for number, one in enumerate(finalists, 1):
            export = self._export(one.graph, one.trace)
            try:
                if self.weights is None:  # else the comparison may not need them all
                    export.model  # noqa: B018 - makes it
            except GraphError as error:
                self.notes.append(f"Candidate {number} cannot be written: {error}")
                continue
            entrants[f"candidate {number}"] = (one, export)
        return entrants

    def _cost_model(self) -> Any:
        from rlflow import cost

        if not isinstance(self.cost, str):
            return self.cost
        own = self.place.cost_options(self.cost, self.measure)
        model = cost.make(self.cost, threads=self.threads, dims={**self.dims, **self.freeze}, **own)
        self.stack.callback(model.close)
        reason = model.available()
        if reason is not None:
            raise RuntimeUnavailable(f"The cost model {self.cost!r} cannot be used here: {reason}")
        return model

    def _searched(self) -> Result:
        self.on_stage("pricing", "pricing the model")
        attach = getattr(self.cost_model, "attach", None)
        if attach is not None:  # whole graphs are timed as they would be deployed
            attach(lambda graph: self._export(graph).source, lambda: self._inputs().feeds[0])
        problem = Problem(
            self.imported.graph,
            self.library,
            self.cost_model,
            self.budget,
            seed=self.seed,
            on_progress=self.on_progress,
            stop=self.stop,
            profile_rules=self.profile_rules,
            patience=self.patience,
        )
        with InterruptGuard(self.stop):
            problem.root()
            self.measurements_before = problem.setup_measurements
            self.on_stage(
                "searching",
                f"searching ({_search.describe(self.strategy)}, {self.budget}, {len(problem.rule_names)} rules)",
            )
            earlier = self._earlier_searches()
            if earlier is not None and (found := earlier.recall(problem)) is not None:
                result, sentence = found
                self.notes.append(sentence)
                return result
            self.statistics = problem.observer = _search.Statistics(problem.rule_names)
            result = _search.solve(problem, self.strategy)
        if earlier is not None:
            earlier.keep(result)
        if result.stop_reason is StopReason.CONVERGED and (idle := problem.idle()) is not None:
            self.notes.append(
                f"The search ended after {result.seconds:.0f} s of its budget, because the last {idle} graphs that it "
                "opened brought no worthwhile gain; --patience off spends the whole budget."
            )
        if self.profile_rules:
            self.rule_rows = problem.rule_profile()
        return result

    def _earlier_searches(self) -> EarlierSearches | None:
        """Searches of this model that were kept beside the prices; ``None`` where that of now cannot be one of them."""
        if self.profile_rules or not repeatable(self.strategy):
            return None
        if not isinstance(self.cost, str) or not hasattr(self.cost_model, "still_holds"):
            return None
        sizes = sorted({**self.dims, **self.freeze}.items())
        patience = None if self.patience is None else self.patience.least
        options = (str(self.budget), patience, self.seed, self.cost, sizes)
        parts = (self.imported.graph.digest, self.library.digest, *options)
        return EarlierSearches(self.cost_model, self.strategy, parts, self.fresh)

    def _gate(self, report: Report, entrants: Mapping[str, tuple[Visited, Export]]) -> tuple[Report, str | None]:
        """The report with what the final comparison found, and the name of the winner."""
        if not self.cost_model.measures and self.place.command is None:
            winner = next(iter(entrants), None)
            reason = report.reason if winner is None else "the analytic cost is lower; no clock was used"
            return replace(report, reason=reason), winner
        from rlflow.cost import gate

        self.on_stage("timing", "timing the candidates against the original" if entrants else "timing the model")
        # Of a large model only the original is timed beside: each further one is loaded again for every block.
        baseline = self._baseline() if self.weights is None or self.freeze else self.source
        token = StopToken()  # of its own: a search that was interrupted still has its best confirmed
        with InterruptGuard(token):
            decision = gate.choose(
                self.place.command or self._worker(),
                baseline,
                {name: _sourced(export) for name, (_, export) in entrants.items()},
                {} if self.place.command is not None else self._inputs().feeds[0],
                seconds=self._gate_seconds(),
                seed=self.seed,
                beside={} if baseline == self.source else {"original": self.source},
                stop=lambda: token.stopped,
                memory=self._memory(baseline, entrants),
                before_closing=self._deployed_outputs if self.verify and self.weights is not None else None,
            )
        if decision.earlier is not None:
            self.notes.append(decision.earlier["sentence"])
        self.notes.extend(
            f"{name} took no part in the final comparison: {why}" for name, why in decision.dropped.items()
        )
        timings = {name: TimeInterval(timing.ms, timing.low, timing.high) for name, timing in decision.timings.items()}
        return self._with_times(report, decision, timings, searched=bool(entrants)), decision.winner

    def _deployed_outputs(self, decision: Any, run: Callable[[str, Any], dict[str, Any]]) -> None:
        """Keep what the original and the winner compute as deployed while they are loaded; the check asks for it."""
        if decision.winner is None or self.freeze:
            return
        with contextlib.suppress(RuntimeCrashed, RuntimeRefused):  # the check will say what is wrong
            feeds = self._inputs().feeds
            outputs = {name: [run(name, one) for one in feeds] for name in ("baseline", decision.winner)}
            self.deployed = {"baseline": outputs["baseline"], "optimised": outputs[decision.winner]}

    def _memory(self, baseline: bytes | str, entrants: Mapping[str, tuple[Visited, Export]]) -> Any:
        """Earlier comparisons of these models here; a device behind a command has no name to keep them under."""
        from rlflow.cost.database import PriceDatabase

        if self.place.command is not None or not entrants:
            return None
        database = getattr(self.cost_model, "database", None)
        if not isinstance(database, PriceDatabase):
            database = self.stack.enter_context(PriceDatabase())
        models: dict[str, Any] = {name: (one.graph, _sourced(export)) for name, (one, export) in entrants.items()}
        models["baseline"] = (self.imported.graph, lambda: baseline)
        return kept_comparisons(database, self._worker(), self._inputs().feeds[0], models, self.fresh)

    def _with_times(self, report: Report, decision: Any, timings: Mapping[str, TimeInterval], searched: bool) -> Report:
        baseline = timings["baseline"]
        original = timings.get("original", baseline)
        named = {"original": original, "baseline": baseline}
        if decision.winner is not None:
            named["optimized"] = timings[decision.winner]
        return replace(
            report,
            reason=decision.reason if searched else report.reason,
            original_ms=original.ms,
            baseline_ms=baseline.ms,
            # Where nothing is gained the model stays as it came, so its time is the original's.
            optimized_ms=named["optimized"].ms if decision.winner is not None else original.ms,
            speedup=decision.speedup if decision.winner is not None else 1.0,
            speedup_ci95=decision.speedup_ci95 if decision.winner is not None else None,
            intervals=named,
            gate=decision.to_dict(),
        )

    def _changed(self, report: Report, chosen: Visited, export: Export) -> OptimizeResult:
        """The end of a run that gained something."""
        found = self._check(chosen, export) if self.verify else None
        if self.output is not None:
            self.on_stage("writing", f"writing {self.output}")
            export.write(self.output)
        report = replace(
            report,
            cost_after_ms=chosen.cost_ms,
            trace=None if chosen.trace is None else [step.to_dict() for step in chosen.trace],
            operators_after=_operators(export.model),
            bytes_after=export.size(),
            verified=found,
        )
        return OptimizeResult(self._finished(report), self._made(export.whole, export.in_one_file))

    def _unchanged(self, report: Report) -> OptimizeResult:
        """The end of a run that gained nothing: the model as it came."""
        inside = not _has_external_data(self.imported.origin.model)
        if self.output is not None:
            self.on_stage("writing", f"writing {self.output} as it came")
            if self.freeze or not inside:
                self._export(self.imported.graph).write(self.output)
            else:
                self._copy_original(self.output)
        report = replace(report, operators_after=report.operators_before, bytes_after=report.bytes_before)
        return OptimizeResult(self._finished(report), self._made(self._as_it_came, inside))

    def _made(self, make: Callable[[], ModelProto], inside: bool) -> Callable[[], ModelProto]:
        """What makes the resulting message, which must not need this run's temporary files: from the file that was
        written, where it is large and has its weights ``inside``, else it is made now.
        """
        from rlflow.frontends.importer import read_model

        if self.output is not None and inside and self.weights is not None:
            return functools.partial(read_model, os.path.abspath(self.output))
        model = make()
        return lambda: model

    def _copy_original(self, target: Path) -> None:
        if self.imported.source_path is None or not os.path.isfile(self.imported.source_path):
            write_atomically(target, self.imported.source_bytes())  # which says that the file has gone
            return
        with open(self.imported.source_path, "rb") as source, replacing(target) as stream:
            shutil.copyfileobj(source, stream, 1 << 22)

    def _as_it_came(self) -> ModelProto:
        from rlflow.frontends.importer import parse_model

        if self.freeze:
            return self.imported.baseline()
        return parse_model(self.imported.source_bytes(), "the model")

    # --- verification -------------------------------------------------------------------------------------------------

    def _check(self, chosen: Visited, export: Export) -> Verified:
        """The figures of the comparison; raises :class:`VerificationFailed`, naming the step that breaks, where outputs
        differ.
        """
        self.on_stage("verifying", "comparing the outputs with the original's")
        from rlflow import verify

        inputs = self._inputs()
        known = {self.source: self.deployed.get("baseline"), export.source: self.deployed.get("optimised")}
        run = with_known_outputs(self._runner(), inputs.feeds, known)
        noise = verify.calibrate(run, self.source, inputs.feeds, seed=self.seed)
        found = verified(run, inputs, self.source, export.source, self.seed, noise)
        if not found.passed:
            raise VerificationFailed(f"{self._culprit(chosen, inputs, noise)} {found.failure()} Nothing was written.")
        self.notes.extend(found.notes)
        return figures(found)

    def _culprit(self, chosen: Visited, inputs: Inputs, noise: Any) -> str:
        """A sentence about the smallest prefix of the trace whose result differs, found by bisection."""
        intro = "The optimised model does not compute what the original computes."
        if not chosen.trace:
            return intro
        graphs = [self.imported.graph, *self._prefixes(chosen.trace)]
        good, bad = 0, len(graphs) - 1
        if not self._agrees(graphs[0], inputs, noise):
            return f"{intro} The import and export alone, without any rewrite, change it."
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self._agrees(graphs[middle], inputs, noise) else (good, middle)
        step = chosen.trace[bad - 1]
        return (
            f"{intro} The smallest prefix of the trace that breaks it ends with step {bad} of {len(chosen.trace)}, "
            f"rule {step.rule!r} at {list(step.match)}."
        )

    def _prefixes(self, trace: Sequence[TraceStep]) -> list[Any]:
        """The graph after each step; finalists share the beginnings of their traces, which are replayed once."""
        from rlflow.rewrite import State, compiled

        if not self.replayed:
            self.replayed[()] = State(self.imported.graph, compiled(self.library))
        graphs = []
        for length in range(1, len(trace) + 1):
            prefix = tuple(trace[:length])
            if prefix not in self.replayed:
                self.replayed[prefix] = next(_search.replay_states(self.replayed[prefix[:-1]], prefix[-1:]))
            graphs.append(self.replayed[prefix].graph)
        return graphs

    def _agrees(self, graph: Any, inputs: Inputs, noise: Any) -> bool:
        return verified(self._runner(), inputs, self.source, self._export(graph).source, self.seed, noise).passed

    # --- resources ----------------------------------------------------------------------------------------------------

    def _worker(self) -> Worker:
        """Where the model will run; a command's device is stood in for by ONNX Runtime here."""
        if self.worker is None:
            pricing = getattr(self.cost_model, "worker", None) if self.place.is_default else None
            # That of the prices is the cost model's to close.
            self.worker = pricing if self.place.fits(pricing) else self.stack.enter_context(self.place.worker())
        assert self.worker is not None
        return self.worker

    def _reference(self) -> Worker:
        """ONNX Runtime on the processor: names the inputs, and computes what outputs are compared with."""
        if self.place.is_default:
            return self._worker()
        if self.reference is None:
            self.reference = self.stack.enter_context(open_worker(self.threads))
        return self.reference

    def _runner(self) -> Any:
        return runner(self._reference(), self._worker())

    def _inputs(self) -> Inputs:
        if self.inputs is None:
            dims = {**self.dims, **self.freeze}
            self.inputs = Inputs.of(
                self._reference(), self.source, self.imported.graph, dims, self.input_data, self.seed
            )
            self.notes.extend(self.inputs.notes)
        return self.inputs

    def _folder(self) -> Path:
        if self.folder is None:
            self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="rlflow-")))
        return self.folder

    def _export(self, graph: Any, trace: Sequence[TraceStep] | None = None) -> Export:
        """``graph`` as ONNX; with its trace, each new node carries the name of the rule that made it."""
        from rlflow.frontends import save_model
        from rlflow.frontends.exporter import slim_model

        def build() -> ModelProto:
            if self.weights is None:
                return save_model(self.imported, graph, rules=self._makers(trace or ()))
            return slim_model(self.imported, graph, self.weights, rules=self._makers(trace or ()))

        def save(path: str) -> ModelProto:
            return save_model(self.imported, graph, path, rules=self._makers(trace or ()))

        external = _has_external_data(self.imported.origin.model)
        return Export(build, self._folder, save, external, self.weights)

    def _makers(self, trace: Sequence[TraceStep]) -> dict[int, str]:
        """Node id -> rule that made it."""
        makers: dict[int, str] = {}
        known = set(self.imported.graph.order())
        for (rule, _), graph in zip(trace, self._prefixes(trace) if trace else (), strict=True):
            now = set(graph.order())
            makers.update(dict.fromkeys(now - known, rule))
            known = now
        return makers

    def _baseline(self) -> bytes | str:
        return self._export(self.imported.graph).source

    def _gate_seconds(self) -> float:
        if self.gate_seconds is not None:
            return self.gate_seconds
        return 10.0 if self.budget.seconds is None else min(20.0, max(2.0, self.budget.seconds / 3.0))

    # --- report -------------------------------------------------------------------------------------------------------

    def _blank(self, reason: str, result: Result | None = None) -> Report:
        """What is known before the gate."""
        source = self.imported.origin.model
        report = Report(
            model=str(self.model) if isinstance(self.model, (str, os.PathLike)) else source.graph.name or "<model>",
            improved=False,
            reason=reason,
            strategy=_search.describe(self.strategy),
            cost_model=self.cost_model.name,
            budget=str(self.budget),
            seed=self.seed,
            stop_reason=str(StopReason.NOTHING_TO_DO if result is None else result.stop_reason),
            operators_before=_operators(source),
            bytes_before=self._bytes_before(),
        )
        if result is None:
            return report
        return replace(
            report,
            cost_before_ms=result.cost_before_ms,
            cost_after_ms=result.cost_before_ms,
            **result.counts._asdict(),
            seconds=result.seconds,
            curve=[point._asdict() for point in result.curve],
            rules=len(self.library),
            statistics=None if self.statistics is None else self.statistics.to_dict(result.trace),
            measurements_before=self.measurements_before,
        )

    def _bytes_before(self) -> int:
        if self.imported.source_path is not None:
            return os.path.getsize(self.imported.source_path)
        return len(self.model) if isinstance(self.model, bytes) else self.imported.origin.model.ByteSize()

    def _finished(self, report: Report) -> Report:
        from rlflow import __version__

        self.notes.extend(getattr(self.cost_model, "notes", list)())
        return replace(
            report,
            runtime=self._runtime(),
            notes=tuple(dict.fromkeys(self.notes)),
            rule_profile=self._rule_profile([step["rule"] for step in report.trace or ()]),
            seconds_total=time.monotonic() - self.started,
            stages=self.on_stage.seconds(),
            seconds_measuring=getattr(getattr(self.cost_model, "totals", None), "seconds", None),
            written=None if self.output is None else str(self.output),
            version=__version__,
        )

    def _rule_profile(self, applied: Sequence[str]) -> list[dict[str, Any]] | None:
        if self.rule_rows is None:
            return None
        return [use._asdict() for use in _search.rule_uses(self.rule_rows, self.library, applied)]

    def _runtime(self) -> RuntimeInfo:
        if self.place.command is not None:
            return RuntimeInfo(self.place.command.name, "as the command says", self.threads)
        if self.worker is None:
            return RuntimeInfo(self.place.runtime, None, self.threads)
        found = self.worker.describe()
        return RuntimeInfo(self.place.runtime_name(found["runtime"]), found["version"], self.threads)


def figures(found: Any) -> Verified:
    """A verification as the report holds it."""
    outputs = [
        OutputFigures(check.name, check.max_abs, check.max_rel, check.tolerance, check.passed, check.vacuous)
        for check in found.outputs
    ]
    return Verified(found.passed, outputs, tuple(found.notes), found.to_dict())


def _sourced(export: Export) -> Callable[[], bytes | str]:
    return lambda: export.source


def _has_external_data(proto: ModelProto) -> bool:
    return any(tensor.data_location == 1 for tensor in proto.graph.initializer)


def _operators(proto: ModelProto) -> dict[str, int]:
    """How often each operator occurs in the main graph; custom ones carry their domain."""
    counts: dict[str, int] = {}
    for node in proto.graph.node:
        name = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        counts[name] = counts.get(name, 0) + 1
    return counts
