from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from rlflow.graph import Graph, operator_counts
from rlflow.testing import random_graph

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_graph_prints_and_parses(seed: int) -> None:
    graph = random_graph(seed, 15)
    assert Graph.parse(graph.text()).digest == graph.digest
    assert sum(operator_counts(graph).values()) >= 1


def test_a_seed_gives_one_graph_in_every_process() -> None:
    code = "from rlflow.testing import random_graph; print(random_graph(11, 25).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "99")
    }
    assert digests == {random_graph(11, 25).digest}


def test_the_operator_table_is_covered() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        seen += operator_counts(random_graph(seed, 30))
    assert len(seen) >= 50
    assert {"Conv", "MatMul", "Gemm", "Split", "Concat", "BatchNormalization", "Softmax", "Slice", "ReduceMean"} <= set(
        seen
    )


def test_the_operators_can_be_chosen() -> None:
    graph = random_graph(3, 12, ops=["Add", "Relu"])
    assert set(operator_counts(graph)) <= {"Add", "Relu"}


@pytest.mark.parametrize("seed", range(6))
def test_a_random_graph_evaluates_to_finite_numbers(seed: int) -> None:
    from rlflow.frontends import graph_to_model
    from rlflow.runtime import Worker

    graph = random_graph(seed, 12)
    rng = np.random.default_rng(seed)
    feeds = {
        graph.input_name(n): rng.standard_normal(graph.shape(graph.node_outputs(n)[0])).astype(np.float32)
        for n in graph.inputs()
    }
    with Worker() as worker:
        handle = worker.load(graph_to_model(graph).SerializeToString(), level="disable")
        outputs = worker.run(handle, feeds)
    assert len(outputs) == len(graph.outputs())
    assert all(np.isfinite(value).all() for value in outputs.values())
