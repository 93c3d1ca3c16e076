"""Recorded prices of the bench of learned searches: what the table has, what it lacks, and rows that are made again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "reproduce" / "learning"), str(ROOT / "reproduce" / "common")]

import machine  # noqa: E402 - from reproduce/common
import record_prices  # noqa: E402 - from reproduce/learning
import recorded  # noqa: E402 - from reproduce/learning
import results  # noqa: E402 - from reproduce/common
import run  # noqa: E402 - from reproduce/learning

from rlflow import search  # noqa: E402
from rlflow._core import Pricer  # noqa: E402
from rlflow.errors import UsageError  # noqa: E402
from rlflow.graph import Graph  # noqa: E402
from rlflow.search import Problem  # noqa: E402
from rlflow.search.prices import REFUSED_MS, Prices  # noqa: E402

TEXT = """
x: f32[4,64] = input
w: f32[64,64] = const
m = MatMul(x, w)
r = Relu(m)
i = Identity(r)
y = Softmax{axis=1}(i)
return y
"""
CHEAPER = TEXT.replace("i = Identity(r)\n", "").replace("(i)", "(r)")


def rows(text: str, ms: float = 0.5, **refused: str) -> list[dict[str, Any]]:
    """A table with every region of a graph at the same price; those of ``refused`` operators have a sentence."""
    graph, pricer = Graph.parse(text), Pricer.table(recorded.FUSION)
    found: list[dict[str, Any]] = [{"kind": "family", "family": "toy", "block": 0, "view_ms": 0.001}]
    for one in pricer.regions(graph):
        operators = recorded.names_of(graph, one)
        why = refused.get(operators)
        found.append({
            "kind": "price", "family": "toy", "signature": one.signature, "region": recorded.kind_of(one),
            "operators": operators, "flops": one.flops, "bytes": one.bytes, "ms": None if why else ms, "refusal": why,
        })  # fmt: skip
    return found


def test_rows_are_told_the_traits_of_regions_that_a_search_meets() -> None:
    table, graph = rows(TEXT), Graph.parse(TEXT)
    table[1]["traits"] = ["told before"]
    problem = Problem(graph, run.RULES, recorded.RecordedCost(table, "toy"), "3x")
    problem.observer = describer = record_prices.Describer(table, Pricer.table(recorded.FUSION))
    search.solve(problem, "greedy")
    describer.look(graph)
    assert {row["operators"]: row["traits"] for row in table[1:]} == {
        "MatMul": ["told before"],
        "Relu": ["Relu", "", [5.5452, 0.0, 0.0, 0.0, 0.0]],
        "Softmax": ["Softmax", "l", [5.5452, 4.1589, 0.0, 0.0, 0.0]],
    }
    assert not describer.lacking


def test_what_the_table_has_is_the_price() -> None:
    graph = Graph.parse(TEXT)
    model = recorded.RecordedCost(rows(TEXT), "toy")
    report = model.cost(graph)
    assert report.total_ms == pytest.approx(sum(one.ms or 0.0 for one in report.per_region))
    assert {one.ms for one in report.per_region if one.ms != 0.001} == {0.5}
    assert (report.estimated, model.guesses(graph)) == (0, (0, 0.0))


def test_what_the_table_lacks_is_estimated_and_counted() -> None:
    graph = Graph.parse(TEXT.replace("[4,64", "[8,64"))
    model = recorded.RecordedCost(rows(TEXT), "toy")
    report = model.cost(graph)
    own = [one.ms or 0.0 for one in report.per_region if one.ms != 0.001]
    assert report.complete
    assert model.guesses(graph)[0] == report.estimated == len(own) >= 2
    assert model.guesses(graph)[1] == pytest.approx(1.0, abs=0.01)
    # In proportion to the roofline of regions of their kind: a little more than at half the size.
    assert all(0.5 < ms < 1.0 for ms in own)


def test_what_was_refused_is_never_cheap() -> None:
    graph, start = Graph.parse(TEXT), Graph.parse(TEXT.replace("Softmax{axis=1}", "Tanh"))

    def prices() -> Prices:
        return Prices.of(recorded.RecordedCost(rows(TEXT, Softmax="no"), "toy"))

    at_the_start, later = prices(), prices()
    at_the_start.settle_root(graph, lambda: False)
    assert 0.5 < at_the_start.pricer.price(graph)[0] < 10.0
    later.settle_root(start, lambda: False)
    later.measure([graph], None, lambda: False)
    assert later.pricer.price(graph)[0] > REFUSED_MS


def test_a_family_without_prices_is_a_sentence() -> None:
    for known in ([], rows(TEXT)[:1]):
        with pytest.raises(UsageError, match=r"no recorded prices of toy.*record_prices\.py"):
            recorded.RecordedCost(known, "toy")


def test_a_search_by_the_table_is_the_same_twice() -> None:
    known = rows(TEXT) + rows(CHEAPER)[1:]

    def once() -> tuple[float, float]:
        model = recorded.RecordedCost(known, "toy")
        found = search.solve(Problem(Graph.parse(TEXT), run.RULES, model, "20x"), "greedy")
        return found.cost_before_ms, found.cost_after_ms

    assert once() == once()
    before, after = once()
    assert after <= before


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Rows of a commit that exists here, of one that does not, and of none."""
    path, head = tmp_path / "rows.jsonl", machine.header([])
    runs = {"here": head["commit"].removesuffix("-dirty"), "lost": "0" * 12, "none": None}
    lines = [{**head, "run": run, "commit": commit} for run, commit in runs.items()]
    lines += [{"kind": "search", "key": run, "gain": 1.0, "expansions": 1, "seconds": 1.0, "run": run} for run in runs]
    results.write_lines(path, lines)
    return path


@pytest.mark.skipif(machine.header([])["commit"] is None, reason="not a git checkout, so no row has a commit")
def test_rows_of_lost_commits_are_made_again_and_stay_until_then(file: Path) -> None:
    kept = run.Rows(file, ["it"], resume=True, renew=True, dirty=True)
    assert [kept.have(key) for key in ("here", "lost", "none", "other")] == [True, False, False, False]
    kept.add({"kind": "search", "key": "lost", "gain": 2.0, "expansions": 1, "seconds": 1.0})
    assert kept.have("lost")
    written, runs = results.read(file)
    assert {row["key"]: row["gain"] for row in written} == {"here": 1.0, "lost": 2.0, "none": 1.0}
    assert runs[next(row["run"] for row in written if row["key"] == "lost")]["commit"] == kept.commit
    plain = run.Rows(file, ["it"], resume=True, dirty=True)
    assert all(map(plain.have, ("here", "lost", "none")))


def test_the_recorder_writes_down_what_it_went_by(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    import record_prices  # from reproduce/learning

    options = {"threads": 1, "repeats": 1, "min_time": 1e-6, "database": tmp_path / "prices.sqlite"}
    graph = Graph.parse(TEXT)
    with record_prices.Recorder(**options) as model:
        model.hurry()  # shorter probes of the machine, which are not kept
        model.fill([graph])
        written = record_prices.rows_of("toy", model)
        regions = model.pricer.regions(graph)
    again = recorded.RecordedCost(written, "toy")
    assert again.guesses(graph) == (0, 0.0)
    again.fill([graph])
    assert [one.ms for one in again.pricer.regions(graph)] == [one.ms for one in regions]
    assert written[0]["regions"] == len(written) - 1 == len({one.signature for one in regions if not one.view})
