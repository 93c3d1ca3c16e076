"""TASO's examples, rebuilt: their sizes are those of the original scripts, and optimising one changes no output."""

from __future__ import annotations

import importlib.util
import sys
from math import prod
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import onnx
import pytest

import rlflow
import taso

FOLDER = Path(__file__).resolve().parents[2] / "reproduce" / "taso"
sys.path.append(str(FOLDER))  # the examples share nets.py


class Sizes(NamedTuple):
    """From replaying the original scripts: operators, weights, parameters (millions), multiply-adds (billions)."""

    operators: int
    weights: int
    parameters: float
    macs: float
    output: tuple[int, ...]


SIZES = {
    "resnet50": Sizes(84, 52, 23.45, 3.97, (1, 2048, 7, 7)),
    "resnext50": Sizes(86, 53, 22.91, 4.23, (1, 2048, 7, 7)),
    "nasnet_a": Sizes(383, 217, 39.84, 15.05, (1, 5120, 7, 7)),
    "nasrnn": Sizes(230, 81, 20.97, 0.021, (1, 512)),
    "bert": Sizes(113, 32, 33.55, 35.4, (1024, 1024)),
    "inceptionv3": Sizes(119, 94, 21.75, 182.8, (32, 2048, 8, 8)),
    "batched_resnet": Sizes(37, 23, 1.41, 0.53, (1, 512, 16, 16)),
}


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"taso_example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def counted(graph: taso.PyGraph) -> Sizes:
    """The same figures of a graph, by its public methods."""
    operators, macs = 0, 0
    weights: dict[int, int] = {}
    ops = graph.get_operator_list()
    types = {op["guid"]: graph.get_operator_type(op) for op in ops}
    for op in ops:
        kind, edges = types[op["guid"]], graph.get_input_edges(op)
        fused = kind == "Relu" and types.get(edges[0]["srcOp"]["guid"]) == "Conv"  # TASO counts them as one
        operators += not fused
        for edge in edges:
            if graph.get_operator_type(edge["srcOp"]) == "Weight":
                weights[edge["srcOp"]["guid"]] = prod(graph.get_input_dims(op, edge["dstIdx"]))
        if kind == "Conv":
            macs += prod(graph.get_output_dims(op, 0)) * prod(graph.get_input_dims(op, 1)[1:])
        if kind == "MatMul":
            macs += prod(graph.get_output_dims(op, 0)) * graph.get_input_dims(op, 0)[-1]
    return Sizes(operators, len(weights), sum(weights.values()) / 1e6, macs / 1e9, graph.outputs()[-1].shape)


@pytest.mark.parametrize("name", SIZES)
def test_an_example_has_the_original_s_size(name: str) -> None:
    found, expected = counted(example(name).build()), SIZES[name]
    assert found[:2] == expected[:2]
    assert found.parameters == pytest.approx(expected.parameters, abs=0.005)
    assert found.macs == pytest.approx(expected.macs, rel=3e-3, abs=0.004)
    assert found.output == expected.output


def test_the_attention_of_the_original_s_bert_is_left_over() -> None:
    assert len(example("bert").build(batch=1).outputs()) == 9


def test_an_optimised_example_computes_the_same() -> None:
    graph = example("nasrnn").build(steps=2)
    better = taso.optimize(graph, budget=10, cost="analytic", verify=False)
    before, after = taso.export_onnx(graph), taso.export_onnx(better)
    onnx.checker.check_model(after, full_check=True)
    assert better.report.improved
    assert rlflow.verify(before, after).passed


def test_bert_gains_at_its_own_alpha_and_budget() -> None:
    """An alpha of 1.0 admits no graph that is dearer than the best, and every way to this gain leads over one."""
    module = example("bert")
    small = module.build(2, length=32, layers=2, hidden=128, heads=4)
    better = taso.optimize(small, module.ALPHA, module.BUDGET, cost="analytic", verify=False)
    assert better.report.cost_after_ms < 0.95 * better.report.cost_before_ms


def test_nasrnn_exports_all_its_inputs() -> None:
    model = taso.export_onnx(example("nasrnn").build())
    onnx.checker.check_model(model, full_check=True)
    assert [info.name for info in model.graph.input] == ["data", "data_1", "data_2", "data_3", "data_4"]
