"""Whole models: what `rlflow optimize --kernels` writes, with its kernels, against the original in ONNX Runtime with
all its optimisations on, and the errors of both against double precision.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import deployed
import machine
import numpy as np
import truth

from rlflow import zoo
from rlflow.equivalence import make_inputs
from rlflow.errors import RuntimeRefused
from rlflow.frontends import blocked
from rlflow.kernels import ALGORITHMS, KEY, KernelPlan, library_path, preparing
from rlflow.optimizer import optimize
from rlflow.race import gate
from rlflow.runtime import RuntimeOptions, Worker, interface

#: Before the name of a model that `reproduce/exports/run.py` left under build/exports.
EXPORTS = "exports/"
EXPORTED = machine.ROOT / "build" / "exports"
#: An odd number, so that one is in the middle.
OPENVINO_BLOCKS = 5


def exports() -> list[str]:
    """The exported models that are there."""
    return [EXPORTS + path.stem.removesuffix("-0") for path in sorted(EXPORTED.glob("*-0.onnx"))]


def source_of(name: str, batch: int | None) -> bytes:
    """The model's file; exported ones have their own batch. Raises :class:`KeyError` for what is not there."""
    if not name.startswith(EXPORTS):
        return (zoo.build(name) if batch is None else zoo.build(name, batch=batch)).SerializeToString()
    path = EXPORTED / f"{name.removeprefix(EXPORTS)}-0.onnx"
    if batch is not None or not path.exists():
        raise KeyError(name)
    return path.read_bytes()


@dataclass(frozen=True)
class How:
    """``seconds``: of the comparison. ``cost``, ``search``, ``budget``: of the optimizer. ``instead``: algorithms of
    the plan by those that shall take their place, so that one can be shown alone.
    """

    seconds: float
    cost: str
    search: str
    budget: str
    threads: int = 1
    batch: int | None = None
    instead: tuple[tuple[str, str], ...] = ()
    skip_rules: tuple[str, ...] = ()
    deployed: bool = False  # also measure the start of sessions and their memory
    openvino: bool = False  # also time OpenVINO on the original

    def key(self, name: str) -> str:
        parts = [name, f"batch {self.batch}" if self.batch else ""]
        parts += [f"{self.threads} threads" if self.threads > 1 else ""]
        parts += [f"{two} for {one}" for one, two in self.instead]
        return ", ".join(filter(None, parts))


def row_of(name: str, how: How) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path, out = os.path.join(folder, "model.onnx"), os.path.join(folder, "out.onnx")
        Path(path).write_bytes(source_of(name, how.batch))
        report = optimize(
            path, output=out, kernels=True, cost=how.cost, search=how.search, budget=how.budget, threads=how.threads,
            skip_rules=how.skip_rules,
        ).report  # fmt: skip
        plan = _plan(out, how)
        row = {
            "kind": "model", "key": how.key(name), "model": name, "threads": how.threads,
            "batch": how.batch or (1 if name.startswith(EXPORTS) else zoo.entry(name).batch),
            "kernels": {} if plan is None else _used(plan),
            "note": [note for note in report.notes if "kernels" in note][-1:], "budget": how.budget,
            "seconds": round(report.seconds_total, 1),
        }  # fmt: skip
        made = blocked.whole(out) if plan is None else _prepared(out, plan, os.path.join(folder, "kernels.onnx"))
        costs = deployed.costs_of(path, out) if how.deployed and plan is not None else {}
        before = machine.cores_at_once(how.threads) if how.threads > 1 else None
        row |= _compared(blocked.whole(path), made, how) | costs
        return row if before is None else row | {"cores_at_once": [before, machine.cores_at_once(how.threads)]}


def _prepared(out: str, plan: KernelPlan, path: str) -> str:
    """The file that a session of the plan opens, at ``path``."""
    made, _ = preparing.applied(blocked.whole(out), plan)
    assert made is not None, "the plan was made here"
    blocked.write_apart(made, path)
    return path


def _plan(path: str, how: How) -> KernelPlan | None:
    text = interface.metadata_entry(path, KEY)
    if text is None:
        return None
    plan, other = KernelPlan.parse(text), dict(how.instead)
    choices = [replace(one, algorithm=other.get(one.algorithm, one.algorithm)) for one in plan.choices]
    return replace(plan, choices=tuple(choices))


def _used(plan: KernelPlan) -> dict[str, int]:
    counted = {one: sum(choice.algorithm == one for choice in plan.choices) for one in ALGORITHMS}
    return {one: count for one, count in counted.items() if count}


def _compared(source: bytes, made: bytes | str, how: How) -> dict[str, Any]:
    """The race of both, and the largest error of each over the largest value of an output."""
    with Worker(RuntimeOptions(threads=how.threads, library=library_path())) as worker:
        feeds = make_inputs(worker.interface(source).inputs, 0, {}, None, {})
        decision = gate.choose(worker, source, {"kernels": made}, feeds, seconds=how.seconds, only=True)
        found = [list(worker.run(worker.load(one), feeds).values()) for one in (source, made)]
    errors: dict[str, Any]
    try:
        right = truth.outputs_in_double(source, feeds)
        first, second = (truth.largest_error(right, one) for one in found)
        errors = {"onnxruntime_error": first, "error": second}
    except (NotImplementedError, ImportError) as reason:
        errors = {"onnxruntime_error": None, "error": None, "no_error": str(reason)}
    errors["difference"] = truth.largest_error(found[0], found[1])
    own, ours = decision.timings["baseline"], decision.timings["kernels"]
    errors |= beside_openvino(source, made, feeds, how) if how.openvino else {}
    return errors | {
        "ratio": decision.speedup or own.ms / ours.ms, "ci95": decision.speedup_ci95, "ms": own.ms,
        "rounds": own.rounds, "clock": decision.clock, "reason": decision.reason,
    }  # fmt: skip


def beside_openvino(source: bytes, made: bytes | str, feeds: dict[str, Any], how: How) -> dict[str, Any]:
    """OpenVINO runs the original: how many times as fast as it ONNX Runtime and the kernels are, in the middle of some
    blocks, each a process of ONNX Runtime's and one of OpenVINO's in turn. Of one thread by processor time.
    """
    first = RuntimeOptions(threads=how.threads, library=library_path())
    second = RuntimeOptions(runtime="openvino", threads=how.threads)
    ratios: list[tuple[float, float]] = []
    with Worker(first) as ours, Worker(second) as theirs:
        try:
            handles, other = [ours.load(source), ours.load(made)], theirs.load(source)
            for block in range(OPENVINO_BLOCKS):
                own = _medians(ours, handles, feeds, block, how)
                (right,) = _medians(theirs, [other], feeds, block, how)
                ratios.append((right / own[0], right / own[1]))
                ours.restart()
                theirs.restart()
        except RuntimeRefused as error:
            return {"openvino": None, "no_openvino": str(error)}
    plain, kernels = (sorted(float(pair[at]) for pair in ratios) for at in (0, 1))
    middle = OPENVINO_BLOCKS // 2
    return {
        "openvino": kernels[middle], "openvino_blocks": kernels, "onnxruntime_over_openvino": plain[middle],
    }  # fmt: skip


def _medians(worker: Worker, handles: list[Any], feeds: dict[str, Any], seed: int, how: How) -> list[float]:
    """Milliseconds of each model."""
    seconds = len(handles) * how.seconds / (3 * OPENVINO_BLOCKS)
    worker.prepare(handles)
    found = worker.time_interleaved(handles, feeds, rounds=200, min_rounds=3, seed=seed, seconds=seconds)
    times = found.wall_ms if how.threads > 1 else found.cpu_ms
    return [float(one) for one in np.median(times, axis=0)]
