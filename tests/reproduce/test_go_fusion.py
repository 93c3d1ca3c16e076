"""The bench of fusions at a toy's size: one row a graph, made once, and its tables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; pip install 'rlflow[rl]'")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "reproduce" / "go"), str(ROOT / "reproduce" / "common")]

import fusion  # noqa: E402 - from reproduce/go


def small(x: Any) -> Any:
    return x * (x / x.sum(-1, keepdim=True)).amax(-1, keepdim=True)


def test_a_row_for_each_graph_that_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "GRAPHS", {"small": (small, ((16, 32),))})
    monkeypatch.setattr(fusion, "RUNS", 2)
    monkeypatch.setattr(fusion, "COMPARED", 3)
    (row,) = fusion.fused(3, lambda **fields: False, str(tmp_path))
    assert (row["kind"], row["key"], row["nodes"], row["evidence"]) == ("fusion", "fusion 3 small", 3, "measured")
    assert set(row["spent"]) == set(fusion.WAYS)
    assert all(one["evaluations"] == 3 for one in row["spent"].values())
    for form in ("whole", "apart"):
        assert list(row[form]) == ["no fusion", "Inductor", *fusion.WAYS] and row[form]["Inductor"]["over"] == 1.0
        assert row["agreement"][form]["ratio"] > 0
    assert row["kernels"]["no fusion"] == 3 and row["worst"] < 1e-5
    assert row["table_ms"]["annealing"] <= row["table_ms"]["Inductor"]
    lines = [line for line in fusion.table([row]) if line.startswith("| small")]
    assert len(lines) == 2 and all(line.count("|") == 12 for line in lines)
    assert not list(fusion.fused(3, lambda **fields: fields == {"key": "fusion 3 small"}, str(tmp_path)))


@pytest.mark.parametrize("name", fusion.GRAPHS)
def test_a_graph_is_a_function_of_its_shapes(name: str) -> None:
    from torch.utils._pytree import tree_leaves

    function, shapes = fusion.GRAPHS[name]
    one, again = (tree_leaves(function(*fusion.drawn(*shapes))) for _ in range(2))
    assert all(torch.equal(*pair) and torch.isfinite(pair[0]).all() for pair in zip(one, again, strict=True))
