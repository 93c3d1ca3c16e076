"""Finished searches are repeated while nothing has changed, and made again where anything has."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlflow import price, search
from rlflow.graph import Graph
from rlflow.ledger import Ledger, LedgerWarning, sealed
from rlflow.price.database import PriceContext
from rlflow.rulesets import load_library
from rlflow.search.earlier import SEARCHES, EarlierSearches, KeptSearch, repeatable
from rlflow.search.result import Result

HERE = PriceContext("a processor", "a runtime", "1.0")
GRAPH = Graph.parse(
    """
    x: f32[64,64] = input
    a = Transpose{perm=[1,0]}(x)
    b = Transpose{perm=[1,0]}(a)
    c = Relu(b)
    d = Transpose{perm=[1,0]}(c)
    e = Transpose{perm=[1,0]}(d)
    f = Relu(e)
    return f
    """
)
PRICES = {"one": 1.0, "refused": None}


class Prices:
    """A cost model that says which prices it went by."""

    place = HERE

    def __init__(self, used: Mapping[str, float | None] | None = None) -> None:
        self.now = dict(PRICES) if used is None else used

    def used(self) -> Mapping[str, float | None] | None:
        return self.now or None

    def still_holds(self, used: Mapping[str, float | None]) -> bool:
        return used == self.now


def problem(budget: str = "200x", **options: Any) -> search.Problem:
    return search.Problem(GRAPH, load_library(None), price.make("analytic", **options), budget)


@pytest.fixture(scope="module")
def result() -> Result:
    found = search.solve(problem("100000x"), "greedy")
    assert found.stop_reason is search.StopReason.EXHAUSTED
    assert found.trace and found.cost_after_ms < found.cost_before_ms
    return found


def earlier(base: Path, *parts: object, spec: str = "greedy", **options: Any) -> EarlierSearches:
    used = options.pop("used", None)
    return EarlierSearches(Prices(used), search.make(spec), parts or ("model", 0), folder=base / "kept", **options)


def test_the_same_again(result: Result, tmp_path: Path) -> None:
    base = tmp_path
    earlier(base).keep(result)
    again = earlier(base).recall(problem())
    assert again is not None
    found, sentence = again
    assert (found.best.digest, found.cost_after_ms, found.trace) == (
        result.best.digest, result.cost_after_ms, result.trace,
    )  # fmt: skip
    assert [one.digest for one in found.runners_up] == [one.digest for one in result.runners_up]
    assert found.counts == result.counts and found.stop_reason is result.stop_reason
    assert "--fresh searches again" in sentence and "exhausted" in sentence
    assert Ledger(SEARCHES, base / "kept").prune() == 1
    assert earlier(base).recall(problem()) is None


@pytest.mark.parametrize(
    ("name", "then"),
    [
        ("another model or seed", lambda base: earlier(base, "model", 1).recall(problem())),
        ("other options", lambda base: earlier(base, spec="greedy:pick=first").recall(problem())),
        ("other prices", lambda base: earlier(base, used={"one": 1.1, "refused": None}).recall(problem())),
        ("graphs that are priced otherwise", lambda base: earlier(base).recall(problem(gbps=1.0))),
        ("the wish for a fresh one", lambda base: earlier(base, fresh=True).recall(problem())),
    ],
)
def test_what_makes_it_another_search(name: str, then: Any, result: Result, tmp_path: Path) -> None:
    base = tmp_path
    earlier(base).keep(result)
    assert then(base) is None, name


CUT_SHORT = [reason for reason in search.StopReason if reason.value not in ("converged", "exhausted")]


@pytest.mark.parametrize("reason", CUT_SHORT)
def test_what_was_cut_short_is_not_kept(reason: search.StopReason, result: Result) -> None:
    assert KeptSearch.of(dataclasses.replace(result, stop_reason=reason), PRICES, "2026-01-01") is None


def test_neither_are_estimates_nor_results_without_a_trace(result: Result, tmp_path: Path) -> None:
    blind = dataclasses.replace(result, best=result.best._replace(trace=None))
    base = tmp_path
    earlier(base, used={}).keep(result)
    earlier(base).keep(blind)
    assert earlier(base).recall(problem()) is None


@pytest.mark.parametrize(
    ("spec", "may_be"),
    [
        ("backtracking:alpha=1.1", True),
        ("eqsat", True),
        ("eqsat:egraph_out=graph.json", False),  # it writes a file
        ("xrlflow", True),  # the shipped agent is part of the package
        ("xrlflow:checkpoint=mine.npz", False),  # what is in the file may change
        ("xrlflow:train=60s", False),
    ],
)
def test_which_searches_may_be_repeated(spec: str, may_be: bool) -> None:
    assert repeatable(search.make(spec)) is may_be


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"traces": [[1]]}'])
def test_what_cannot_be_read_is_nothing(text: str, result: Result, tmp_path: Path) -> None:
    earlier(tmp_path).keep(result)
    (entry,) = (tmp_path / "kept").iterdir()
    for content in (text, sealed(SEARCHES, text)):
        entry.write_text(content)
        with pytest.warns(LedgerWarning, match="cannot be used"):
            assert earlier(tmp_path).recall(problem()) is None
        assert not entry.exists()


def test_a_trace_of_another_graph_is_nothing(result: Result) -> None:
    kept = KeptSearch.of(result, PRICES, "2026-01-01")
    assert kept is not None
    assert KeptSearch.of_plain(json.loads(json.dumps(kept.plain()))) == kept
    steps = [step._replace(match=(9999,)) for step in kept.traces[0]]
    wrong = dataclasses.replace(kept, traces=[tuple(steps), *kept.traces[1:]])
    assert wrong.repeated(problem(), search.make("greedy")) is None
