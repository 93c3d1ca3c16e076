"""The report: what the stages' values say, put together once, at the end."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlflow import search as _search
from rlflow.pipeline.precision import bill
from rlflow.pipeline.racing import CLEANUP
from rlflow.pipeline.writing import Written, operators
from rlflow.report import Report, RuntimeInfo, TimeInterval, Verified
from rlflow.report.surroundings import surroundings
from rlflow.search import StopReason

if TYPE_CHECKING:
    from rlflow.pipeline.context import Context
    from rlflow.pipeline.found import Found
    from rlflow.pipeline.loading import Loaded
    from rlflow.pipeline.racing import Raced

__all__ = ["report"]


def report(
    loaded: Loaded,
    found: Found | None,
    raced: Raced,
    checked: Verified | None,
    written: Written,
    context: Context,
    seconds: dict[str, float],
) -> Report:
    """The report of one optimisation; ``found`` is ``None`` where no search took place. ``seconds``: by stage."""
    from rlflow import __version__

    options, source = context.options, loaded.imported.origin.model
    before = operators(source)
    context.notes.extend(context.cost_model.notes())
    return Report(
        model=loaded.name,
        improved=raced.winner is not None,
        reason=raced.reason,
        strategy=_search.describe(options.strategy),
        cost_model=context.cost_model.name,
        budget=str(options.limits),
        seed=options.seed,
        stop_reason=str(StopReason.NOTHING_TO_DO if found is None else found.result.stop_reason),
        **_of_search(loaded, found, raced),
        **_of_race(raced),
        verified=checked,
        rounding=bill(loaded, raced.winner, context),
        operators_before=before,
        operators_after=before if written.operators is None else written.operators,
        bytes_before=loaded.size,
        bytes_after=loaded.size if written.size is None else written.size,
        runtime=_runtime(context),
        notes=tuple(dict.fromkeys(context.notes)),
        seconds_total=time.monotonic() - context.started,
        stages=seconds,
        parts=context.parts.given,
        seconds_measuring=context.cost_model.totals.seconds if context.cost_model.measures else None,
        written=None if context.output is None else str(context.output),
        version=__version__,
        input={**_hashed(loaded), "graph": None if loaded.library is None else str(loaded.graph.digest)},
        environment=surroundings(),
    )


def _hashed(loaded: Loaded) -> dict[str, Any]:
    """SHA-256 and size of the model's file, or of its serialised form where it came from memory; weights in files
    beside it are the graph's digest's to cover.
    """
    path, found = loaded.imported.source_path, hashlib.sha256()
    if path is None or not os.path.isfile(path):
        data = loaded.imported.source_bytes()
        return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    with open(path, "rb") as stream:
        while piece := stream.read(1 << 20):
            found.update(piece)
        return {"sha256": found.hexdigest(), "bytes": stream.tell()}


def _of_search(loaded: Loaded, found: Found | None, raced: Raced) -> dict[str, Any]:
    if found is None:
        return {}
    result, chosen = found.result, None if raced.winner is None else raced.winner.visited
    trace: Sequence[Any] | None = ()
    if chosen is not None:
        trace = None if chosen.trace is None else [step.to_dict() for step in chosen.trace]
    return {
        "cost_before_ms": result.cost_before_ms,
        "cost_after_ms": result.cost_before_ms if chosen is None else chosen.cost_ms,
        **result.counts._asdict(),
        "seconds": result.seconds,
        "curve": [point._asdict() for point in result.curve],
        "rules": len(loaded.ruleset.names),
        "statistics": None if found.statistics is None else found.statistics.to_dict(result.trace),
        "measurements_before": found.setup_measurements,
        "trace": trace,
        "rule_profile": _rule_profile(loaded, found, [step["rule"] for step in trace or ()]),
    }


def _rule_profile(loaded: Loaded, found: Found, applied: Sequence[str]) -> list[dict[str, Any]] | None:
    if found.rule_rows is None:
        return None
    return [use._asdict() for use in _search.rule_uses(found.rule_rows, loaded.library, applied)]


def _of_race(raced: Raced) -> dict[str, Any]:
    """The times of the final comparison, where there was one."""
    decision, cleanup = raced.decision, raced.cleanup
    if decision is None:
        return {}
    taken = dict(decision.timings)
    if not taken and cleanup is not None and CLEANUP in cleanup.timings:  # there was time for that comparison only
        taken = {"baseline": cleanup.timings[CLEANUP], "original": cleanup.timings["baseline"]}
    if "baseline" not in taken:
        return {"gate": decision.to_dict()}
    timings = {name: TimeInterval(*_interval(timing)) for name, timing in taken.items()}
    baseline = timings["baseline"]
    original = timings.get("original", baseline)
    searched = decision.winner is not None and raced.winner is not None
    if raced.winner is not None and not searched:  # the clean-up is written: its own race says how fast it is
        original, baseline = (TimeInterval(*_interval(cleanup.timings[name])) for name in ("baseline", cleanup.winner))
    named = {"original": original, "baseline": baseline}
    if searched:
        named["optimized"] = timings[decision.winner]
    # Where nothing is gained the model stays as it came, so its time is the original's.
    written = named["optimized"] if searched else baseline if raced.winner is not None else original
    return {
        "original_ms": original.ms,
        "baseline_ms": baseline.ms,
        "optimized_ms": written.ms,
        "speedup": decision.speedup if searched else 1.0,
        "speedup_ci95": decision.speedup_ci95 if searched else None,
        "cleanup_speedup": original.ms / baseline.ms if cleanup is None else cleanup.speedup,
        "cleanup_ci95": None if cleanup is None else cleanup.speedup_ci95,
        "intervals": named,
        "gate": decision.to_dict(),
    }


def _interval(timing: Any) -> tuple[float, float, float]:
    return timing.ms, timing.low, timing.high


def _runtime(context: Context) -> RuntimeInfo:
    place, threads = context.options.place, context.options.threads
    if place.command is not None:
        return RuntimeInfo(place.command.name, "as the command says", threads)
    found = context.runtime
    if found is None:
        return RuntimeInfo(place.runtime, None, threads)
    return RuntimeInfo(place.runtime_name(found["runtime"]), found["version"], threads)
