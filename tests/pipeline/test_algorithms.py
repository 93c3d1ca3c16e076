"""Winograd's algorithm in plain operators: a candidate where a clock prices it and the tolerance allows it."""

from __future__ import annotations

from typing import Any

import pytest

from rlflow import price
from rlflow.errors import UsageError
from rlflow.graph import Graph
from rlflow.options import Options
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
        ({"kernels": True}, False),  # the kernels do it better
        ({"kernels": True, "skip_rules": ["winograd"]}, False),
        ({"kernels": True, "only_rules": ["winograd-4-of-conv-bias"]}, True),
        ({"kernels": True, "rules": ["winograd"], "skip_rules": ["winograd-2*"]}, True),
        ({"kernels": True, "cost": "onnxruntime+kernels"}, True),  # these prices know the kernels
    ],
)
def test_they_are_rules_by_default_where_a_clock_can_price_them(options: dict[str, Any], expected: bool) -> None:
    assert has_algorithms(**options) is expected


@pytest.mark.parametrize(
    ("channels", "outputs", "group", "block", "fires"),
    [
        (128, 128, 32, 16, False),  # four channels a group, in whole blocks: a kernel does it
        (48, 48, 6, 16, False),
        (104, 104, 13, 16, True),  # half a block is left over
        (104, 104, 13, 8, False),
        (48, 96, 6, 16, True),  # twice as many channels out as in
        (96, 96, 16, 16, True),  # six channels a group
        (128, 128, 32, 0, True),  # a runtime without blocks
    ],
)
def test_narrow_groups_that_blocks_can_hold_are_left_to_the_kernels(
    channels: int, outputs: int, group: int, block: int, fires: bool
) -> None:
    text = f"x: f32[1,{channels},8,8] = input\nw: f32[{outputs},{channels // group},3,3] = const\n"
    graph = Graph.parse(f"{text}y = {CONV.replace('group=1', f'group={group}')}(x, w)\nreturn y")
    library = left_to_kernels(load_rules(families=["layout"]), block)
    found = {list(library)[rule] for rule in State(graph, compiled(library)).moves().rule}
    assert any(name.startswith("grouped-conv-") for name in found) is fires
    assert all(rule.proof is not None and rule.proof.stale(rule.core) is None for rule in library.values())


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
