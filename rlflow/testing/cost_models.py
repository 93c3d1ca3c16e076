"""What every cost model must do, as checks that raise ``AssertionError`` with a sentence.

>>> from rlflow.testing import check_cost_model
>>> check_cost_model(lambda: MyCost(gflops=100.0))

A model that cannot be used here (``available`` says why) is refused with its sentence, not passed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from rlflow.graph import Graph
from rlflow.price import CostModel, CostReport, FillReport, GraphTime, Price
from rlflow.price.coverage import Coverage

#: Makes a model that has priced nothing yet.
Make = Callable[[], CostModel]

_PRODUCT = "x: f32[{rows},64] = input\nw: f32[64,64] = const\nm = MatMul(x, w)\ny = Relu(m)\nz = Tanh(y)\nreturn z"
_ONE, _OTHER = (_PRODUCT.format(rows=rows) for rows in (8, 12))
_OPEN = _PRODUCT.format(rows="N")


def says_what_it_is(make: Make) -> None:
    """Every member of the protocol is there and of its kind, before anything is priced."""
    with make() as model:
        reason = model.available()
        assert reason is None, f"{model.name}: cannot be used here: {reason}"
        kinds = {
            "name": str, "measures": bool, "whole": bool, "dims": Mapping, "refusals": Mapping, "coverage": Coverage,
            "totals": FillReport, "streams_weights": bool, "relative_noise": float,
        }  # fmt: skip
        for member, kind in kinds.items():
            found = getattr(model, member, None)
            assert isinstance(found, kind), f"{model.name}: {member} is {found!r}, expected {kind.__name__}"
        assert isinstance(model, CostModel), f"{model.name}: lacks members of CostModel; derive from it"
        assert all(isinstance(one, Price) for one in model.timed_regions()), f"{model.name}: timed_regions are Prices"
        assert model.totals == FillReport(), f"{model.name}: has measured something before it was asked"
        assert model.notes() == [], f"{model.name}: has notes before there was a price: {model.notes()}"


def costs_add_up(make: Make) -> None:
    """A graph's cost is the sum of its rows, what lacks a price is counted, and the report is plain data."""
    with make() as model:
        report = model.cost(Graph.parse(_ONE))
        assert report.per_region, f"{model.name}: the report has no rows"
        bad = [row.ms for row in report.per_region if row.ms is not None and not row.ms >= 0.0]
        assert not bad, f"{model.name}: has prices below zero, or that are no numbers: {bad}"
        total = sum(row.ms or 0.0 for row in report.per_region)
        assert abs(report.total_ms - total) <= 1e-9 * total, f"{model.name}: says {report.total_ms}, rows make {total}"
        assert total > 0.0, f"{model.name}: a product of matrices costs nothing"
        lacking = sum(row.ms is None for row in report.per_region)
        assert report.unmeasured == lacking, f"{model.name}: {lacking} rows lack a price, the report says otherwise"
        json.dumps(report.to_dict(), allow_nan=False)
        assert all(isinstance(note, str) and note for note in model.notes()), f"{model.name}: notes are sentences"


def one_pricer(make: Make) -> None:
    """States and moves are priced with one pricer for the model's life."""
    with make() as model:
        pricer = model.pricer
        model.cost(Graph.parse(_ONE))
        assert model.pricer is pricer, f"{model.name}: another pricer after the first price"


def nothing_is_measured_twice(make: Make) -> None:
    """What has a price is not measured again, and the totals are those of all calls."""
    with make() as model:
        graphs = [Graph.parse(_ONE), Graph.parse(_OTHER)]
        first, again = model.fill(graphs), model.fill(graphs)
        assert again.measured == again.remaining == 0, f"{model.name}: a second call says {again}"
        assert model.totals.measured == first.measured, f"{model.name}: measured {first}, totals say {model.totals}"
        assert model.measures or first == FillReport(), f"{model.name}: does not measure, and yet {first}"
        assert first.remaining == 0, f"{model.name}: without a limit {first.remaining} prices are missing"


def limits_are_honoured(make: Make) -> None:
    """No more is measured than was allowed, nothing after a request to stop, and what is left is counted."""
    with make() as model:
        none = model.fill([Graph.parse(_ONE)], limit=0)
        assert none.measured == 0, f"{model.name}: a limit of 0, and {none.measured} were measured"
        known = none.cached + none.remaining
        assert known or not model.measures, f"{model.name}: what a limit leaves out is neither cached nor remaining"
        model.fill([Graph.parse(_ONE)])
        stopped = model.fill([Graph.parse(_OTHER)], stop=lambda: True)
        assert stopped.measured == 0, f"{model.name}: was stopped, and measured {stopped.measured}"


def kept_prices_hold(make: Make) -> None:
    """What a search went by is in the database as it was, and a price that is another one is noticed."""
    with make() as model:
        model.cost(Graph.parse(_ONE))
        used = model.used()
        assert not model.still_holds({"no such key": 1.0}), f"{model.name}: holds a price that nobody measured"
        if used is None:  # declared: another run may go by other prices
            return
        assert model.database is not None, f"{model.name}: has used kept prices, and no database"
        assert model.place is not None, f"{model.name}: has used kept prices, and says not where"
        assert model.still_holds(used), f"{model.name}: the prices that it used are not in its database"
        key = next(iter(used))
        other = {**used, key: (used[key] or 0.0) + 1.0}
        assert not model.still_holds(other), f"{model.name}: takes another price for the one that it used"


def whole_graphs_have_times(make: Make) -> None:
    """A model of whole graphs knows the time of what it priced, by digest, and of nothing else; others know none."""
    with make() as model:
        graph, other = Graph.parse(_ONE), Graph.parse(_OTHER)
        model.fill([graph])
        found = model.graph_time(graph.digest)
        if not model.whole:
            assert found is None, f"{model.name}: prices regions, and has a time of a whole graph"
            return
        assert isinstance(found, GraphTime), f"{model.name}: a graph that was timed has no time"
        assert (found.ms is None) == bool(found.refusal), f"{model.name}: neither a time nor a reason: {found}"
        assert model.graph_time(other.digest) is None, f"{model.name}: has the time of a graph that it never saw"


def sizes_are_bound(make: Make) -> None:
    """Symbolic dimensions have the sizes that are said before the first price."""
    with make() as model, make() as fixed:
        model.bind({"N": 8})
        assert model.dims.get("N") == 8, f"{model.name}: was told that N is 8, says {dict(model.dims)}"
        found = model.cost(Graph.parse(_OPEN))
        assert found.complete, f"{model.name}: {found.unmeasured} regions with a size that is known have no price"
        if not model.measures:
            same = fixed.cost(Graph.parse(_ONE)).total_ms
            assert abs(found.total_ms - same) <= 1e-9 * same, f"{model.name}: N=8 costs {found.total_ms}, 8 {same}"


def a_formula_is_exact(make: Make) -> None:
    """Without a clock the same graph has the same price in every object."""
    found: list[CostReport] = []
    for _ in range(2):
        with make() as model:
            if model.measures:
                return
            found.append(model.cost(Graph.parse(_ONE)))
    assert found[0] == found[1], f"two objects price one graph differently: {found[0].total_ms}, {found[1].total_ms}"


def haste_and_closing_are_borne(make: Make) -> None:
    """Being told to hurry, and how graphs are deployed, changes no contract; closing twice is closing."""
    from rlflow.frontends import graph_to_model

    model = make()
    model.hurry()
    model.attach(lambda graph: graph_to_model(graph).SerializeToString(), None)
    report = model.cost(Graph.parse(_ONE))
    assert report.complete, f"{model.name}: in haste {report.unmeasured} regions stay without a price"
    model.close()
    model.close()


CHECKS: tuple[Callable[[Make], None], ...] = (
    says_what_it_is,
    costs_add_up,
    one_pricer,
    nothing_is_measured_twice,
    limits_are_honoured,
    kept_prices_hold,
    whole_graphs_have_times,
    sizes_are_bound,
    a_formula_is_exact,
    haste_and_closing_are_borne,
)


def check_cost_model(make: Make, checks: Iterable[Callable[[Make], None]] = CHECKS) -> None:
    """Run all checks; raises ``AssertionError`` at the first that fails. ``make`` makes a new model for each."""
    for check in checks:
        check(make)
