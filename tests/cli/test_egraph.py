"""E-graphs on the command line: written by a search, read and chosen from by ``rlflow search extract``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import onnx
import pytest

from tests.cli.commands import merge_model, rlflow


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "merge.onnx"
    onnx.save(merge_model(), path)
    return path


@pytest.fixture
def written(model: Path) -> Path:
    path = model.with_name("egraph.json")
    ran = rlflow("search", "run", model, "--search", "eqsat", "--budget", "200c", "--egraph-out", path)
    assert ran.exit_code == 0, ran.output
    return path


def test_a_search_writes_its_e_graph(written: Path) -> None:
    document = json.loads(written.read_text())
    assert any(node["op"].startswith("Concat") for node in document["nodes"].values())
    assert document["root_eclasses"]


def test_optimize_writes_it_too(model: Path) -> None:
    path = model.with_name("again.json.gz")
    ran = rlflow(
        "optimize", model, "--search", "tensat", "--cost", "analytic", "--budget", "200c", "--egraph-out", path
    )
    assert ran.exit_code == 0, ran.output
    assert path.read_bytes()[:2] == b"\x1f\x8b"


@pytest.mark.parametrize("method", ["greedy-tree", "greedy-dag", "ilp"])
def test_a_file_is_chosen_from(written: Path, method: str) -> None:
    if method == "ilp":
        pytest.importorskip("highspy", reason="HiGHS is not installed")
    choice = written.with_name("choice.json")
    ran = rlflow("search", "extract", written, "--method", method, "--json", choice)
    assert ran.exit_code == 0, ran.output
    found = json.loads(choice.read_text())
    nodes = json.loads(written.read_text())["nodes"]
    assert found["cost"] == pytest.approx(sum(nodes[node]["cost"] for node in found["choices"].values()))
    assert all(nodes[node]["eclass"] == cls for cls, node in found["choices"].items())
    assert (f"by {method}" in ran.output) and (found["status"] == ("optimal" if method == "ilp" else "heuristic"))


def test_no_file_no_e_graph_and_no_solver_are_said_in_a_sentence(
    model: Path, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    for arguments, sentence in [
        (("search", "extract", model.with_name("none.json")), "cannot be read"),
        (("search", "extract", model), "is not an e-graph"),
        (("search", "extract", written, "--method", "ilp"), "HiGHS is not installed"),
        (("search", "run", model, "--search", "beam", "--egraph-out", written), "makes no e-graph"),
        (("optimize", model, "--search", "eqsat", "--egraph-out", model), "is the input itself"),
    ]:
        ran = rlflow(*arguments)
        assert ran.exit_code != 0
        assert sentence in ran.output
