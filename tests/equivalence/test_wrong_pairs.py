"""Wrong models are told from right ones: a table of the mistakes that rewrites make, and pairs that must pass."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from wrong_pairs import NEIGHBOURS, WRONG, Pair, deep, normal, op
from wrong_pairs import net as written

from rlflow.deployment import Inputs, verified
from rlflow.equivalence import calibrate
from rlflow.equivalence.runners import runner
from rlflow.frontends import graph_to_model, load_model, save_model
from rlflow.frontends.constants import ConstantStore
from rlflow.rewrite import State, compiled
from rlflow.rulesets import load_library
from rlflow.runtime import Worker
from rlflow.synthesis.floats import filled
from rlflow.testing import random_graph

#: Differs only where all scores that a mask lets through are below -10,000.
NOT_SEEN = {"a mask of -1e4 instead of the lowest finite"}

OPERATORS = (
    "MatMul", "Add", "Mul", "Sub", "Transpose", "Split", "Concat", "Slice", "Relu", "Sigmoid", "ReduceMean", "Softmax",
    "BatchNormalization", "Conv", "Max", "Neg",
)  # fmt: skip


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as opened:
        yield opened


def compared(worker: Worker, original: bytes, other: bytes, dims: dict[str, int] | None = None) -> Any:
    inputs = Inputs.of(worker, original, load_model(original).graph, dict(dims or {}), None, 0)
    return verified(runner(worker, worker), inputs, original, other, 0)


class TestTable:
    @pytest.mark.parametrize("moved", [True, False], ids=["", "noise put off"])
    @pytest.mark.parametrize("pair", [*WRONG, *NEIGHBOURS], ids=lambda pair: pair.name)
    def test_the_wrong_one_is_caught_and_the_exported_clean_up_is_not(
        self, worker: Worker, pair: Pair, moved: bool
    ) -> None:
        imported, run = load_model(pair.original), runner(worker, worker)
        inputs = Inputs.of(worker, pair.original, imported.graph, dict(pair.dims), None, 0)
        noise = calibrate(run, pair.original, inputs.feeds, plan=inputs.plan, moved=moved)
        cleaned = save_model(imported, imported.graph).SerializeToString()
        right, wrong = (verified(run, inputs, pair.original, other, 0, noise) for other in (cleaned, pair.wrong))
        assert right.passed, right.failure()
        assert wrong.passed is (pair.name in NOT_SEEN)
        assert wrong.passed or "he output '" in wrong.failure()

    def test_there_are_twenty_nine(self) -> None:
        assert len(WRONG) == 29
        assert len({pair.name for pair in (*WRONG, *NEIGHBOURS)}) == len(WRONG) + len(NEIGHBOURS)


class TestRight:
    @pytest.mark.parametrize("seed", range(6))
    def test_random_rewrites(self, worker: Worker, seed: int) -> None:
        rules, rng = compiled(load_library(None)), np.random.default_rng(seed)
        graph, constants = filled(random_graph(seed, 16, ops=OPERATORS))
        state = State(graph, rules)
        for _ in range(20):
            if not len(state.moves()):
                break
            state = state.open(int(rng.integers(len(state.moves()))))
        found = compared(worker, serialized(graph, constants), serialized(state.graph, constants))
        assert found.passed, found.failure()

    def test_a_product_of_products_associated_otherwise(self, worker: Worker) -> None:
        a, b = normal(16, 64) / np.float32(4), normal(64, 16, seed=1) / np.float32(8)
        chained = written([op("MatMul", "x a", "m"), op("MatMul", "m b", "y")], {"a": a, "b": b})
        joined = written([op("MatMul", "x c", "y")], {"c": (a.astype(float) @ b.astype(float)).astype(np.float32)})
        found = compared(worker, chained, joined)
        assert found.passed, found.failure()

    @pytest.mark.parametrize(("scale", "layers", "large"), [(1.7, 5, False), (2**0.5, 8, False), (1.7, 5, True)])
    def test_a_division_as_a_product_with_the_reciprocal(
        self, worker: Worker, scale: float, layers: int, large: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The reciprocal's one rounding is in all elements alike, and each square doubles it. ``large``: the model
        counts as one of which only small tensors are moved.
        """
        if large:
            monkeypatch.setattr("rlflow.frontends.instrument.MOVED_BYTES", 10)

        def squares(kind: str, factor: np.float32) -> bytes:
            names = ["x", *(f"m{k}" for k in range(layers - 1)), "y"]
            steps = itertools.pairwise(names)
            pairs = [(op(kind, f"{one} s", f"d{two}"), op("Mul", f"d{two} d{two}", two)) for one, two in steps]
            return written([node for pair in pairs for node in pair], {"s": factor})

        factor = np.float32(scale)
        found = compared(worker, squares("Div", factor), squares("Mul", np.float32(1) / factor))
        assert found.passed, found.failure()
        assert not compared(worker, squares("Div", factor), squares("Div", factor * np.float32(1.00001))).passed

    def test_a_tiny_probability(self, worker: Worker) -> None:
        """A sigmoid is computed in steps of half a unit of 1.0, so small results differ by parts of themselves."""
        bias = np.float32([-14.0] * 8 + [0.0] * 8)
        direct = written([op("Add", "x b", "a"), op("Sigmoid", "a", "y")], {"b": bias})
        nodes = [op("Add", "x b", "a"), op("Neg", "a", "n"), op("Exp", "n", "e"), op("Add", "e one", "d")]
        spelled = written([*nodes, op("Reciprocal", "d", "y")], {"b": bias, "one": np.float32(1)})
        assert compared(worker, direct, spelled).passed


def serialized(graph: Any, constants: ConstantStore) -> bytes:
    return graph_to_model(graph, constants).SerializeToString()


def test_the_kinds_of_inputs_are_reported(worker: Worker) -> None:
    found = compared(worker, deep(2), deep(2))
    assert found.to_dict()["inputs"][:3] == ["usual (2)", "sizes N=2", "scale 1000"]
