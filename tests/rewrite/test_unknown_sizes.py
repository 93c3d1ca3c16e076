"""Where an extent or a rank is not known, a rule applies only if its conditions hold for all that it may be."""

from __future__ import annotations

import pytest

from rlflow import _core
from rlflow.rewrite import RuleLibrary, all_shipped

LIBRARY: RuleLibrary = all_shipped()
LARGEST = 2**63 - 1


def names_of_matches(text: str, *names: str) -> set[str]:
    listed = names or tuple(LIBRARY)
    state = _core.State(_core.Graph.parse(text), _core.RuleSet([LIBRARY[name].core for name in listed]))
    return {listed[int(number)] for number in state.moves().rule}


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ((0, 3), (3, 5), True),
        ((2, 5), (5, LARGEST), True),
        ((2, 2), (2, 7), True),
        ((2, -3), (-3, LARGEST), False),  # N = 4: 1 to 3 and 2 to 3
        ((2, 5), (5, -3), False),  # N = 6: 2 to 4 and 5 to 2, which is nothing; one slice would be 2 to 2
        ((5, 2), (2, 7), False),
        ((2, 5), (5, 3), False),
        ((-4, -2), (-2, LARGEST), False),
    ],
)
def test_slices_of_an_open_extent_are_joined_where_their_bounds_are_in_order(
    first: tuple[int, int], second: tuple[int, int], joined: bool
) -> None:
    bounds = {"a": first, "b": second}
    parts = [f"{k} = Slice{{axes=[0], starts=[{b}], ends=[{e}], steps=[1]}}(x)" for k, (b, e) in bounds.items()]
    text = "\n".join(["x: f32[N,8] = input", *parts, "c = Concat{axis=0}(a, b)", "return c"])
    assert (names_of_matches(text, "concat-of-adjacent-slices") != set()) is joined


#: What is behind a Reshape to a computed shape has no known rank, and so its axes stay as they are written.
UNRANKED = "X: f32[K] = input\nS: i64[R] = input\nx = Reshape(X, S)\n"
BEHIND = {
    "slice-before-softmax": ("a = Softmax{axis=-1}(x)", "Slice{axes=[3], starts=[0], ends=[2], steps=[1]}"),
    "slice-before-reduce-kept": (
        "a = ReduceSum{axes=[3], keepdims=1}(x)",
        "Slice{axes=[-1], starts=[0], ends=[1], steps=[1]}",
    ),
    "slice-before-global-pool": ("a = GlobalAveragePool(x)", "Slice{axes=[-1], starts=[0], ends=[1], steps=[1]}"),
    "slice-before-pool": (
        "a = MaxPool{kernel_shape=[2,2], strides=[1,1]}(x)",
        "Slice{axes=[-1], starts=[0], ends=[2], steps=[1]}",
    ),
    "slice-before-concat": (
        "y = Relu(x)\na = Concat{axis=-1}(x, y)",
        "Slice{axes=[3], starts=[1], ends=[2], steps=[1]}",
    ),
    "slice-of-slice-other-axis": (
        "a = Slice{axes=[3], starts=[1], ends=[4], steps=[1]}(x)",
        "Slice{axes=[-1], starts=[1], ends=[3], steps=[1]}",
    ),
    "slice-before-batch-norm": (
        "s: f32[4] = input\na = BatchNormalization{epsilon=1e-5}(x, s, s, s, s)",
        "Slice{axes=[-1], starts=[0], ends=[2], steps=[1]}",
    ),
    "slice-before-lookup-leading": (
        "j: i64[2] = input\na = Gather{axis=1}(x, j)",
        "Slice{axes=[-1], starts=[0], ends=[1], steps=[1]}",
    ),
}


@pytest.mark.parametrize("name", BEHIND)
def test_an_axis_that_counts_from_an_unknown_end_meets_no_condition(name: str) -> None:
    """Conditions compare axes as numbers, and -1 may be any."""
    before, behind = BEHIND[name]
    assert name in LIBRARY
    assert name not in names_of_matches(f"{UNRANKED}{before}\nb = {behind}(a)\nreturn b")
