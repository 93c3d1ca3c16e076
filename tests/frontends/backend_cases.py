"""ONNX's own operator test cases, sent through load and save: the outputs must stay those that the case expects.

A case counts where ONNX Runtime itself passes it. It is then run three more times: as saved; written anew, with every
node in the form that the adaptors give it at the case's own opset; and, where no node is opaque, as a stand-alone model
at the default opset. ``python tests/frontends/backend_cases.py [EVERY]`` runs all of them (or each EVERY-th) and prints
the counts.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from rlflow.errors import RlflowError
from rlflow.frontends import graph_to_model, load_model, save_model
from rlflow.frontends.imported import ImportedModel

Feeds = dict[str, Any]


@dataclass
class Summary:
    """Counts by outcome, and one line for each case that came out different."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        listed = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        return f"{listed}; {len(self.failures)} failures"


def collect(every: int = 1, offset: int = 0) -> list[Any]:
    """Each ``every``-th operator case of the installed onnx, in the order of their names."""
    from onnx.backend.test.case.node import collect_testcases

    cases = sorted(collect_testcases(None), key=lambda case: case.name)
    return cases[offset::every]


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    """Outputs in ONNX Runtime; its own exception where it refuses."""
    opened = session(model)
    names = [info.name for info in opened.get_inputs()]
    return opened.run(None, dict(zip(names, inputs, strict=False)))


def differs(found: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float) -> str | None:
    """Why two lists of outputs are not equal, or None."""
    if len(found) != len(expected):
        return f"{len(found)} outputs, expected {len(expected)}"
    for index, (a, b) in enumerate(zip(found, expected, strict=True)):
        if isinstance(b, (list, tuple)):
            inner = differs(list(a or []), list(b), rtol, atol)
            if inner:
                return f"output {index}: {inner}"
            continue
        if a is None or b is None:
            if a is not b:
                return f"output {index} is {a!r}, expected {b!r}"
            continue
        left, right = np.asarray(a), np.asarray(b)
        if left.shape != right.shape:
            return f"output {index} has shape {left.shape}, expected {right.shape}"
        if left.dtype.kind in "OUS":
            if left.astype(str).tolist() != right.astype(str).tolist():
                return f"output {index}: strings differ"
        elif not np.allclose(left.astype(_wide(left)), right.astype(_wide(right)), rtol, atol, equal_nan=True):
            return f"output {index} differs"
    return None


def _wide(array: np.ndarray[Any, Any]) -> type:
    return np.complex128 if array.dtype.kind == "c" else np.float64


def renewed(imported: ImportedModel) -> onnx.ModelProto:
    """The model with no node taken from its original: every canonical node in the form that the adaptors write."""
    kept = imported.origin.nodes
    imported.origin.nodes = {node: entry for node, entry in kept.items() if entry.op == "Opaque"}
    try:
        return save_model(imported, imported.graph)
    finally:
        imported.origin.nodes = kept


def standalone(imported: ImportedModel) -> onnx.ModelProto | None:
    """The graph at the default opset, or None where an opaque node ties it to its own, or where it takes no tensors."""
    graph = imported.graph
    if any(graph.op(node) == "Opaque" for node in graph.order()):
        return None
    if any(graph.dtype(graph.node_outputs(node)[0]) == 0 for node in graph.inputs()):
        return None
    return graph_to_model(graph, imported.constants)


def check(case: Any, summary: Summary) -> None:
    """Runs one case and adds its outcome to ``summary``."""
    summary.counts["cases"] += 1
    baseline = _outputs(lambda: case.model, case)
    if isinstance(baseline, str) or any(_mismatch(case, baseline)):
        summary.counts["not passed by the runtime itself"] += 1
        return
    summary.counts["passed by the runtime"] += 1
    try:
        imported = load_model(case.model)
    except RlflowError as error:
        summary.failures.append(f"{case.name}: load: {error}")
        return
    if imported.passthrough is not None:
        summary.counts["carried through whole"] += 1
    elif any(entry.op == "Opaque" for entry in imported.origin.nodes.values()):
        summary.counts["with opaque nodes"] += 1
    _check_variant(case, "saved", lambda: save_model(imported, imported.graph), summary)
    if imported.passthrough is None:
        _check_variant(case, "renewed", lambda: renewed(imported), summary)
        _check_variant(case, "standalone", lambda: standalone(imported), summary)


def _check_variant(case: Any, kind: str, make: Callable[[], onnx.ModelProto | None], summary: Summary) -> None:
    try:
        model = make()
    except RlflowError as error:
        summary.failures.append(f"{case.name}: {kind}: {error}")
        return
    if model is None:
        return
    outputs = _outputs(lambda: model, case)
    reasons = [outputs] if isinstance(outputs, str) else list(_mismatch(case, outputs))
    if kind == "standalone" and isinstance(outputs, str):
        summary.counts["stand-alone forms that the runtime lacks"] += 1
    elif reasons:
        summary.failures.append(f"{case.name}: {kind}: {reasons[0]}")
    else:
        summary.counts[f"equal as {kind}"] += 1


def _outputs(make: Callable[[], onnx.ModelProto], case: Any) -> list[list[Any]] | str:
    try:
        model = make()
        return [run(model, inputs) for inputs, _ in case.data_sets]
    except Exception as error:  # noqa: BLE001 - the runtime raises many families; the reason is reported
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}"


def _mismatch(case: Any, outputs: list[list[Any]]) -> Iterator[str]:
    for found, (_, expected) in zip(outputs, case.data_sets, strict=True):
        reason = differs(found, expected, max(case.rtol, 1e-3), max(case.atol, 1e-5))
        if reason is not None:
            yield reason


def run_all(every: int = 1, offset: int = 0) -> Summary:
    """All cases, or each ``every``-th."""
    summary = Summary()
    for case in collect(every, offset):
        check(case, summary)
    return summary


if __name__ == "__main__":
    result = run_all(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    sys.stdout.write("\n".join([*result.failures, str(result)]) + "\n")
    sys.exit(1 if result.failures else 0)
