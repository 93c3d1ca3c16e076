"""Values that no call can use: each is refused in one sentence of ``rlflow.errors``, and the graph stays usable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from taso_graphs import two_products

import taso
from rlflow.errors import GraphError, UsageError

NAN, INF = float("nan"), float("inf")
Call = Callable[[taso.PyGraph, taso.PyTensor], Any]

#: call, what the sentence holds
CALLS: list[tuple[Call, str]] = [
    (lambda g, x: g.new_input((-1, 3)), r"new_input\(dims=\(-1, 3\)\): .*extent -1; expected 0 or more, below 2\*\*62"),
    (lambda g, x: g.new_input((2**70,)), r"extent 1180591620717411303424; expected 0 or more, below 2\*\*62"),
    (lambda g, x: g.new_input(("",)), r"\('',\) is not a list of extents"),
    (lambda g, x: g.new_input(None), r"new_input\(dims=None\): None is not a list of extents"),
    (lambda g, x: g.new_input("N3"), r"'N3' is not a list of extents"),
    (lambda g, x: g.new_input((1.5,)), r"\(1.5,\) is not a list of extents"),
    (lambda g, x: g.new_input((1,), name=""), r"name=''.*expected a name that is not empty"),
    (lambda g, x: g.new_input((1,), name=3), r"name=3.*expected a name"),
    (lambda g, x: g.new_weight((-1, 3)), r"new_weight\(dims=\(-1, 3\)\): there is an extent -1; expected 0 or"),
    (lambda g, x: g.new_weight((2**31, 2**31)), r"4611686018427387904 elements"),
    (lambda g, x: g.new_weight((2**40,)), r"1099511627776 elements"),
    (lambda g, x: g.new_weight((2,), ["a", "b"]), r"data is not an array of numbers"),
    (lambda g, x: g.new_weight((2,), [[1], [2, 3]]), r"data is not an array of numbers"),
    (lambda g, x: g.new_weight((1,), [1j]), r"data is not an array of numbers"),
    (lambda g, x: g.new_weight((1,), object()), r"data is not an array of numbers"),
    (lambda g, x: g.maxpool2d(x, 2, 1, 2), r"padding \[2, 2, 2, 2\] must be smaller than the kernel, \[2, 2\]"),
    (lambda g, x: g.avgpool2d(x, 2, 1, 2), r"avgpool2d\(.*padding \[2, 2, 2, 2\] must be smaller than the kernel"),
    (lambda g, x: g.maxpool2d(x, (3, 2), 1, (1, 2)), r"padding \[1, 2, 1, 2\] must be smaller than the kernel"),
    (lambda g, x: g.maxpool2d(x, (2, 3), 1, (0, 0, 2, 0)), r"padding \[0, 0, 2, 0\] must be smaller than the kernel"),
    (lambda g, x: g.avgpool2d(x, 1, 1, 1), r"must be smaller than the kernel, \[1, 1\]"),
    (lambda g, x: g.leakyrelu(x, "a"), r"alpha='a' is not a number"),
    (lambda g, x: g.leakyrelu(x, None), r"alpha=None is not a number"),
    (lambda g, x: g.dropout(x, "a"), r"rate='a' is not a number"),
    (lambda g, x: g.batchnorm(x, x, x, x, x, epsilon="a"), r"epsilon='a' is not a number"),
    (lambda g, x: g.batchnorm(x, x, x, x, x, epsilon=NAN), r"epsilon is nan"),
    (lambda g, x: g.slice(x, [], []), r"start is empty; expected one number per axis"),
    (lambda g, x: g.split(x, 1, []), r"sizes is empty; expected at least one"),
    (lambda g, x: g.split(x, 1, [-1, 5]), r"split\(.*sizes=\[-1, 5\]\): "),
    (lambda g, x: g.split(x, 1, 1.5), r"sizes=1.5 is not a list of integers"),
    (lambda g, x: g.slice(x, [0], [1], 1.5), r"axes=1.5 is not a list of integers"),
    (lambda g, x: g.unsqueeze(x, []), r"axes .*at least one"),
    (lambda g, x: g.reshape(x, (2**70,)), r"extent 1180591620717411303424"),
    (lambda g, x: g.reshape(x, (-2, 72)), r"extent -2; expected -1 or more"),
    (lambda g, x: g.reshape(x, None), r"None is not a list of extents"),
    (lambda g, x: g.concat(0, None), r"inputs=None is not a list of tensors"),
    (lambda g, x: g.concat(0, x), r"inputs=.* is not a list of tensors"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "sentence"), CALLS)
def test_a_bad_value_is_a_sentence(call: Call, sentence: str) -> None:
    graph = taso.new_graph()
    x = graph.new_input((1, 4, 6, 6))
    with pytest.raises((GraphError, UsageError), match=sentence) as caught:
        call(graph, x)
    assert str(caught.value).startswith("taso: ")
    graph.relu(x)
    assert [info.name for info in taso.export_onnx(graph).graph.input] == ["data"]  # the handle is still good


#: call on a graph with something to optimise, what the sentence holds
OPTIONS: list[tuple[Callable[[taso.PyGraph], Any], str]] = [
    (lambda g: taso.optimize(g, budget=NAN, cost="analytic"), r"budget=nan; expected"),
    (lambda g: taso.optimize(g, budget=INF, cost="analytic"), r"budget=inf; expected"),
    (lambda g: taso.optimize(g, budget=-1, cost="analytic"), r"budget=-1; expected"),
    (lambda g: taso.optimize(g, alpha="a", cost="analytic"), r"alpha='a' is not a number"),
    (lambda g: taso.optimize(g, alpha=NAN, cost="analytic"), r"alpha"),
    (lambda g: taso.optimize(g, seconds="2s", cost="analytic"), r"seconds='2s' is not a number"),
    (lambda g: taso.optimize(g, seconds=NAN, cost="analytic"), r"seconds=nan; expected"),
    (lambda g: taso.optimize(None), r"optimize\(\) got NoneType; expected a PyGraph"),
    (lambda g: taso.export_onnx(None), r"export_onnx\(\) got NoneType; expected a PyGraph"),
    (lambda g: taso.export_onnx("g"), r"export_onnx\(\) got str; expected a PyGraph"),
    (lambda g: taso.export_onnx(g, opset=99), r"export_onnx\(\): opset=99; expected an integer of 1 to \d\d"),
    (lambda g: taso.export_onnx(g, opset=0), r"opset=0; expected an integer of 1 to"),
    (lambda g: taso.export_onnx(g, opset=-1), r"opset=-1; expected an integer of 1 to"),
    (lambda g: taso.export_onnx(g, opset="17"), r"opset='17'; expected an integer of 1 to"),
    (lambda g: taso.export_onnx(g, opset=17.5), r"opset=17.5; expected an integer of 1 to"),
    (lambda g: taso.export_onnx(taso.load_onnx(taso.export_onnx(g)), opset=99), r"opset=99; expected an integer"),
    (lambda g: taso.load_onnx(taso.export_onnx(g), dims="N=3"), r"dims='N=3'; expected a mapping"),
    (lambda g: taso.load_onnx(taso.export_onnx(g), dims={"N": "3"}), r"dims={'N': '3'}; expected a mapping"),
    (lambda g: taso.new_graph(seed=-1), r"seed=-1; expected an integer of 0 or more"),
    (lambda g: taso.new_graph(seed="a"), r"seed='a'; expected an integer of 0 or more"),
    (lambda g: taso.PyModel(seed=-1).new_graph(), r"seed=-1; expected an integer of 0 or more"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "sentence"), OPTIONS)
def test_a_bad_option_is_a_sentence(call: Callable[[taso.PyGraph], Any], sentence: str) -> None:
    with pytest.raises((GraphError, UsageError), match=sentence):
        call(two_products())


def test_good_values_stay_good() -> None:
    graph = taso.new_graph(seed=np.int64(3))
    assert graph.new_input(("N", np.int64(0), 3)).shape == ("N", 0, 3)
    assert graph.new_input(()).shape == ()
    assert graph.new_input(5).shape == (5,)
    assert graph.new_weight((0, 3)).shape == (0, 3)
    assert graph.new_weight((2,), [True, 2]).shape == (2,)
    assert graph.new_weight((2, 1), np.float64([[1], [2]])).shape == (2, 1)
    image = graph.new_input((1, 1, 5, 5))
    assert graph.maxpool2d(image, (3, 2), 1, (2, 1)).shape == (1, 1, 7, 6)
    assert graph.avgpool2d(image, 7, 1, "SAME").shape == (1, 1, 5, 5)
    assert graph.conv2d(image, graph.new_weight((1, 1, 1, 1)), 1, 2).shape == (1, 1, 9, 9)
    x = graph.new_input((2, 3))
    assert graph.reshape(x, (-1, np.int64(2))).shape == (3, 2)
    assert graph.leakyrelu(x, np.float32(0.5)).shape == (2, 3)
    assert [part.shape for part in graph.split(x, 1, np.int64(3))] == [(2, 1)] * 3
    assert graph.concat(0, iter([x, x])).shape == (4, 3)
    assert taso.export_onnx(graph, opset=np.int64(18)).opset_import[0].version == 18
    newest = onnx.defs.onnx_opset_version()
    assert taso.export_onnx(graph, opset=newest).opset_import[0].version == newest
    assert taso.optimize(two_products(), np.float64(1.05), np.int64(3), cost="analytic").report is not None
