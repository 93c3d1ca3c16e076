"""Optimising a taso graph: what is returned, which rules and searches there are, what alpha and budget mean."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import foreign_files as pb
import numpy as np
import onnx
import pytest
from taso_graphs import outputs_of, two_products

import taso
from rlflow.errors import RlflowError, UsageError
from rlflow.rewrite import load_rules
from rlflow.search import names, strategy_class, unavailable


def case(search: str) -> object:
    """A strategy as a parameter; one that lacks what it needs on this machine is skipped with its reason."""
    reason = unavailable(search)
    return pytest.param(search, marks=pytest.mark.skipif(reason is not None, reason=str(reason)))


def test_optimize_returns_a_new_graph_and_leaves_the_old_one(capsys: pytest.CaptureFixture[str]) -> None:
    graph = two_products()
    before, model = graph.cost(), taso.export_onnx(graph)
    handles = graph.outputs()
    better = taso.optimize(graph, 1.0, 20, True, cost="analytic")
    assert better is not graph
    assert better.report is not None
    assert better.report.improved
    assert better.report.verified.passed
    assert better.cost() < before == graph.cost()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"{len(better.report.trace)} substitutions applied"
    assert len(printed) == len(better.report.trace) + 1 > 1
    assert taso.export_onnx(graph) == model
    assert graph.exp(handles[0]).shape == (4, 16)  # old handles work on
    found = taso.export_onnx(better)
    onnx.checker.check_model(found, full_check=True)
    feeds = {"data": np.random.default_rng(3).standard_normal((4, 32)).astype(np.float32)}
    for one, wanted in zip(outputs_of(found, feeds), outputs_of(model, feeds), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-5)


def test_optimize_works_as_a_method_and_returns_a_copy_where_nothing_is_gained() -> None:
    graph = taso.new_graph()
    graph.relu(graph.new_input(dims=(2, 2)))
    same = graph.optimize(1.0, 5, False, cost="analytic")
    assert same is not graph
    assert not same.report.improved
    assert same.to_rlflow() == graph.to_rlflow()
    same.exp(same.outputs()[0])
    assert len(graph.get_operator_list()) == 1


def test_the_measured_cost_is_the_default() -> None:
    graph = two_products()
    found = taso.optimize(graph, budget=2, seconds=2.0, gate_seconds=0.5)
    assert found.report.cost_model == "onnxruntime"
    assert "2x" in found.report.budget
    assert graph.run_time() > 0


def test_taso_home_is_never_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASO_HOME", str(tmp_path))
    taso.optimize(two_products(), budget=1, cost="analytic", verify=False)
    (tmp_path / "graph_subst.pb").write_bytes(b"\x0a\x00")
    with pytest.warns(UserWarning, match=r"the rules in .*graph_subst\.pb are not used: .* rule 0 cannot be read"):
        taso.optimize(two_products(), budget=1, cost="analytic", verify=False)


def test_the_rules_in_taso_home_are_used_as_far_as_they_are_true(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the four is false, one needs a condition; rlflow does not load associativity of sums by itself."""
    from rlflow.compat.taso.home import home_rules

    monkeypatch.delenv("TASO_HOME", raising=False)
    assert home_rules() is None
    monkeypatch.setenv("TASO_HOME", str(tmp_path))
    sums = pb.rule([(pb.ADD, (-2, -3), {}), (pb.ADD, (-1, 0), {})], [(pb.ADD, (-1, -2), {}), (pb.ADD, (0, -3), {})])
    (tmp_path / "graph_subst.pb").write_bytes(pb.TINY + sums)
    with pytest.warns(UserWarning, match=r"of the 5 rules in .*, 1 are not used \(TASO #2: refuted.*and 1 only under"):
        library = home_rules()
    (added,) = set(library) - set(load_rules())
    assert library[added].family in ("imported", "generated")
    assert all(side[0].count("(Add") == 2 for side in (library[added].source, library[added].target))
    with pytest.warns(UserWarning, match="1 are not used"):
        assert taso.optimize(two_products(), budget=1, cost="analytic").cost() > 0


@pytest.mark.parametrize("search", [case(name) for name in names()])
def test_every_strategy_takes_an_alpha(search: str) -> None:
    """A strategy without such a bound does without."""
    graph = two_products()
    found = taso.optimize(graph, 1.1, 4, search=search, seconds=1.0, cost="analytic", verify=False)
    assert taso.export_onnx(found).graph.output
    bounded = "alpha" in {field.name for field in dataclasses.fields(strategy_class(search))}
    assert ("alpha=1.1" in found.report.strategy) == bounded


@pytest.mark.parametrize("alpha", [None, 1.0])
@pytest.mark.parametrize("search", ["backtracking", "greedy", "eqsat"])
def test_no_alpha_and_taso_s_default_leave_it_to_the_strategy(search: str, alpha: float | None) -> None:
    found = taso.optimize(two_products(), alpha, 4, search=search, cost="analytic", verify=False)
    assert found.report.strategy == search


@pytest.mark.parametrize(
    ("alpha", "members"),
    [(None, "eqsat+backtracking"), (1.0, "eqsat+backtracking"), (1.2, "eqsat+backtracking(alpha=1.2)")],
)
def test_the_default_search_is_given_the_alpha(alpha: float | None, members: str) -> None:
    found = taso.optimize(two_products(), alpha, 4, cost="analytic", verify=False)
    assert found.report.strategy == f"portfolio:members={members}"


def test_optimize_refuses_what_is_no_graph_and_no_budget() -> None:
    with pytest.raises(UsageError, match="expected a PyGraph"):
        taso.optimize("model.onnx")
    with pytest.raises(RlflowError, match="above zero"):
        taso.optimize(two_products(), budget=0, cost="analytic")
