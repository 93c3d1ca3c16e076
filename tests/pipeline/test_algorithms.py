"""Winograd's algorithm in plain operators: a candidate where a clock prices it and the tolerance allows it."""

from __future__ import annotations

from typing import Any

import pytest

from rlflow import price
from rlflow.errors import UsageError
from rlflow.graph import Graph
from rlflow.kernels import preparing
from rlflow.options import Options
from rlflow.pipeline import loading
from rlflow.rewrite import State, compiled, load_rules
from rlflow.rulesets import left_to_kernels, with_algorithms
from rlflow.search import Problem
from rlflow.search.lead import _priced_by_the_formula

CONV = "Conv{dilations=[1,1], group=1, kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1]}"


def has_algorithms(**options: Any) -> bool:
    rules = Options(**options).chosen_rules
    return rules is not None and any(rule.family == "winograd" for rule in rules.values())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"cost": "end-to-end:seconds=1"}, True),
        ({"tolerance": 1.5}, True),
        ({"tolerance": "strict"}, False),
        ({"cost": "analytic"}, False),
        ({"cost": price.make("analytic")}, False),
        ({"rules": ["fold"], "skip_rules": ["fold-mul-into-conv"]}, False),
        ({"rules": ["winograd"], "cost": "analytic", "skip_rules": ["winograd-2*"]}, True),
        ({"skip_rules": ["winograd"]}, False),
        ({"only_rules": ["winograd-4-of-conv-bias"]}, True),
    ],
)
def test_they_are_rules_by_default_where_a_clock_can_price_them(options: dict[str, Any], expected: bool) -> None:
    assert has_algorithms(**options) is expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"kernels": True}, True),  # the kernels do it better
        ({"kernels": True, "cost": "analytic"}, False),
        ({"kernels": True, "only_rules": ["winograd-4-of-conv-bias"]}, False),
        ({"kernels": True, "rules": ["winograd"], "skip_rules": ["winograd-2*"]}, False),
        ({"kernels": True, "cost": "onnxruntime+kernels"}, False),  # these prices know the kernels
    ],
)
def test_rules_by_default_may_be_left_to_the_kernels(options: dict[str, Any], expected: bool) -> None:
    assert Options(**options).leaves_to_kernels is expected


@pytest.mark.parametrize("kernels", [False, True])
def test_a_model_is_loaded_without_what_is_left_to_them(kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "block_here", lambda: 16)
    graph = Graph.parse("x: f32[1,4,3,3] = input\ny = Relu(x)\nreturn y")
    library = loading._wanted_rules(Options(kernels=kernels), graph)
    assert any(rule.family == "winograd" for rule in library.values()) is not kernels


def test_the_kernels_have_winograds_algorithm() -> None:
    graph = Graph.parse("x: f32[1,4,3,3] = input\ny = Relu(x)\nreturn y")
    library = with_algorithms()
    left = set(library) - set(left_to_kernels(library, graph, 16))
    assert {name for name in library if library[name].family == "winograd"} <= left
    assert {name for name in left if not name.startswith("winograd-")} == {
        f"grouped-conv-{name}{bias}" for name in ("in-pairs", "with-one-more") for bias in ("", "-bias")
    }
    assert left_to_kernels(library, graph, 0) is library  # a runtime without blocks


@pytest.mark.parametrize(
    ("shapes", "block", "left"),
    [
        ([(128, 4, 32)], 16, True),  # weights out and in, groups: in whole blocks, so that a kernel does it
        ([(48, 8, 6), (128, 4, 32)], 16, True),
        ([(128, 4, 32), (104, 8, 13)], 16, False),  # half a block is left over; and what is padded there is joined, too
        ([(104, 8, 13)], 8, True),
        ([(96, 8, 6)], 16, False),  # twice as many channels out as in
        ([(96, 6, 16)], 16, False),  # six channels a group
        ([(36, 12, 3)], 16, True),  # no rule is for it
        ([(36, 1, 36)], 16, True),  # nor for one channel a group
        ([(36, 4, 1)], 16, True),
    ],
)
def test_narrow_groups_that_blocks_can_hold_are_left_to_the_kernels(
    shapes: list[tuple[int, int, int]], block: int, left: bool
) -> None:
    lines = []
    for k, (outputs, members, group) in enumerate(shapes):
        lines += [f"x{k}: f32[1,{members * group},8,8] = input", f"w{k}: f32[{outputs},{members},3,3] = const"]
        lines.append(f"y{k} = {CONV.replace('group=1', f'group={group}')}(x{k}, w{k})")
    graph = Graph.parse("\n".join([*lines, "return " + ", ".join(f"y{k}" for k in range(len(shapes)))]))
    library = left_to_kernels(load_rules(families=["layout"]), graph, block)
    assert any(name.startswith("grouped-conv-") for name in library) is not left


def test_the_formula_knows_no_rule_that_stands_for_them() -> None:
    with pytest.raises(UsageError, match="called 'winograd'"):
        Options(cost="analytic", skip_rules=["winograd"]).chosen_rules  # noqa: B018


@pytest.mark.parametrize(
    ("height", "width", "rules"),
    [
        (8, 12, {"winograd-4-of-conv", "winograd-2-of-conv"}),
        (6, 12, {"winograd-4-of-conv-padded", "winograd-2-of-conv"}),
        (7, 9, {"winograd-4-of-conv-padded", "winograd-2-of-conv-padded"}),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_a_convolution_of_any_size_has_one_of_each(height: int, width: int, rules: set[str], bias: bool) -> None:
    text = f"x: f32[1,32,{height},{width}] = input\nw: f32[40,32,3,3] = const\nb: f32[40] = const\n"
    graph = Graph.parse(f"{text}y = {CONV}(x, w{', b' if bias else ''})\nreturn y")
    library = load_rules(families=["winograd"])
    state = State(graph, compiled(library))
    found = {list(library)[rule] for rule in state.moves().rule}
    assert found == {name.replace("conv", "conv-bias") if bias else name for name in rules}
    for k in range(len(state.moves())):
        child = state.child(k)
        assert child.shape(child.outputs()[0]) == [1, 40, height, width]


@pytest.mark.parametrize(
    "change", [("[1,1,1,1]", "[0,0,0,0]"), ("strides=[1,1]", "strides=[2,2]"), ("f32[1,", "f32[2,")]
)
def test_other_convolutions_have_none(change: tuple[str, str]) -> None:
    text = f"x: f32[1,32,8,8] = input\nw: f32[32,32,3,3] = const\ny = {CONV}(x, w)\nreturn y".replace(*change)
    assert not len(State(Graph.parse(text), compiled(load_rules(families=["winograd"]))).moves())


def test_a_search_by_the_formula_leaves_them_out() -> None:
    library = with_algorithms()
    graph = Graph.parse("x: f32[1,4,3,3] = input\ny = Relu(x)\nreturn y")
    clocked = frozenset(name for name, rule in library.items() if rule.family == "winograd")
    assert len(clocked) == 8
    problem = Problem(graph, library, price.make("analytic"), "5x", clocked=clocked)
    assert set(_priced_by_the_formula(problem).names) == set(library) - clocked
    assert set(_priced_by_the_formula(Problem(graph, library, price.make("analytic"), "5x")).names) == set(library)
