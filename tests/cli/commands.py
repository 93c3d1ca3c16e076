"""The command line in process, and two models to give it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from rlflow.cli import main

RNG = np.random.default_rng(0)


def rlflow(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def commands_of(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by what one types."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands_of(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def _weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(RNG.standard_normal(shape).astype(np.float32), name)


def merge_model(width: int = 64) -> onnx.ModelProto:
    """Three products of one input, summed: merging them is cheaper by every cost model."""
    nodes = [helper.make_node("MatMul", ["x", f"w{k}"], [f"p{k}"], name=f"product{k}") for k in range(3)]
    nodes += [helper.make_node("Add", ["p0", "p1"], ["s"]), helper.make_node("Add", ["s", "p2"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "merge",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, width])],
        [_weight(f"w{k}", width, width) for k in range(3)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def plain_model(nodes: list[onnx.NodeProto] | None = None, **options: Any) -> onnx.ModelProto:
    nodes = nodes or [helper.make_node("Sin", ["x"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "plain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, options.pop("shape", [2, 3]))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        options.pop("weights", []),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
