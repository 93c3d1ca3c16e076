"""Buffers as ONNX Runtime's planner gives them out, on flows small enough to follow by hand."""

from __future__ import annotations

import pytest

from rlflow.footprint import Flow, FlowJob, footprint

FIRST = ((0, 0),)


def flow(*jobs: tuple[str, str, tuple[tuple[int, int], ...]], outputs: str = "y", **elements: int) -> Flow:
    """Jobs as "a b", "c", reuses; sizes in units of 256 bytes, one by default."""
    made = tuple(
        FlowJob(tuple(read.split()), tuple(written.split()), number, reuses=how)
        for number, (read, written, how) in enumerate(jobs)
    )
    values = {value for job in made for value in (*job.inputs, *job.outputs)} | {"x"}
    shapes = {value: (1, 64, elements.get(value, 1)) for value in values}
    return Flow(made, shapes, dict.fromkeys(values, 4), frozenset({"x"}), tuple(outputs.split()))


def needs(*jobs: tuple[str, str, tuple[tuple[int, int], ...]], **more: object) -> tuple[int, int]:
    """Block and live bytes in units of 256."""
    found = footprint(flow(*jobs, **more))  # type: ignore[arg-type]
    assert found.block % 256 == 0 and found.live % 256 == 0
    return found.block // 256, found.live // 256


def test_a_chain_needs_two_values_at_a_time() -> None:
    jobs = (("x", "a", ()), ("a", "b", ()), ("b", "c", ()), ("c", "y", ()))
    # a, then b beside it, then c in a's buffer; at the end the output beside c and the buffer of b, which is over.
    assert needs(*jobs, a=4, b=4, c=4, y=1) == (8, 8)


def test_an_output_is_computed_in_place_where_nobody_else_reads_the_input() -> None:
    assert needs(("x", "a", ()), ("a", "b", FIRST), ("b", "y", ()), a=4, b=4) == (4, 5)
    assert needs(("x", "a", ()), ("a", "b", FIRST), ("a b", "y", ()), a=4, b=4) == (8, 9)


def test_the_callers_input_is_never_written_over() -> None:
    assert needs(("x", "a", FIRST), ("a", "y", ()), x=4, a=4) == (4, 5)


def test_a_freed_buffer_of_the_same_shape_lives_on() -> None:
    """The runtime decides this before it runs: ``c`` gets the buffer of ``a``, which stays while ``b`` is computed."""
    jobs = (("x", "a", ()), ("a", "b", ()), ("b", "big", ()), ("big", "c", ()), ("c", "y", ()))
    assert needs(*jobs, a=2, b=1, big=8, c=2) == (11, 11)
    # A different shape is not taken over: the room of ``a`` is free for others.
    assert needs(*jobs, a=2, b=1, big=8, c=1) == (11, 9)


def test_the_smallest_gap_that_is_large_enough_is_taken() -> None:
    jobs = (("x", "a", ()), ("x", "b", ()), ("x", "c", ()), ("x", "d", ()), ("b d", "e", ()), ("a c e", "y", ()))
    assert needs(*jobs, a=1, b=2, c=1, d=4, e=3) == (11, 11)


@pytest.mark.parametrize(("reuses", "alias", "block"), [(FIRST, True, 4), ((), False, 8)])
def test_a_view_has_no_buffer(reuses: tuple[tuple[int, int], ...], alias: bool, block: int) -> None:
    jobs = (
        FlowJob(("x",), ("a",), 0),
        FlowJob(("a",), ("b",), 1, reuses=reuses, alias=alias),
        FlowJob(("b",), ("y",), 2),
    )
    shapes = {"x": (1, 64), "a": (4, 64), "b": (64, 4), "y": (1, 64)}
    found = footprint(Flow(jobs, shapes, dict.fromkeys(shapes, 4), frozenset({"x"}), ("y",)))
    assert found.block == block * 256


def test_workspace_counts_on_top_of_the_block() -> None:
    jobs = (FlowJob(("x",), ("a",), 0, workspace=640), FlowJob(("a",), ("y",), 1, workspace=64))
    shapes = {"x": (1, 64), "a": (4, 64), "y": (2, 64)}
    found = footprint(Flow(jobs, shapes, dict.fromkeys(shapes, 4), frozenset({"x"}), ("y",)))
    assert found.block == 1024 and found.outputs == 512 and found.peak == 1024 + 640
