"""Gelu inside ONNX Runtime against the same in double precision."""

from __future__ import annotations

import math

import blocked_models as models
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlflow.frontends.blocked import BlockedGraph
from rlflow.kernels import unavailable

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

erf = np.vectorize(math.erf)


def model(operator: str, domain: str, shape: tuple[int, ...], bias: np.ndarray | None, **attributes) -> bytes:
    names = ["x"] if bias is None else ["x", "b"]
    node = helper.make_node(operator, names, ["y"], name="gelu", domain=domain, **attributes)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    initial = [] if bias is None else [numpy_helper.from_array(bias, "b")]
    graph = helper.make_graph([node], "one", ends[:1], ends[1:], initial)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(2, 7, 48), (5,), (), (1, 1), (3, 1031), (0, 8), (1, 24, 7, 7), (2, 5, 11, 13)])
@pytest.mark.parametrize(
    ("operator", "domain"), [("Gelu", ""), ("Gelu", "com.microsoft"), ("BiasGelu", "com.microsoft")]
)
def test_it_is_gelu(operator: str, domain: str, shape: tuple[int, ...], threads: int) -> None:
    rng = np.random.default_rng(0)
    x = np.asarray(3 * rng.standard_normal(shape), np.float32)
    if operator == "BiasGelu" and not shape:
        return
    bias = rng.standard_normal(shape[-1]).astype(np.float32) if operator == "BiasGelu" else None
    graph = BlockedGraph(model(operator, domain, shape, bias), 0)
    (site,) = graph.sites()
    assert (site.kind, site.sizes) == ("gelu", (0 if bias is None else shape[-1],))
    found = models.opened(graph.with_kernels({site.name: {"rows": 2}}), threads).run(None, {"x": x})[0]
    wide = np.asarray(x.astype(np.float64) + (0.0 if bias is None else bias))
    truth = wide / 2 * (1 + (erf(wide / math.sqrt(2)) if wide.size else wide))
    assert found.shape == shape
    assert np.abs(found - truth).max(initial=0.0) < 1e-6 * np.abs(truth).max(initial=1.0)


def test_extremes_are_as_the_formula_has_them() -> None:
    x = np.array([-np.inf, -1e30, -60, -0.0, 0.0, 60, 1e30, np.inf, np.nan], np.float32)
    graph = BlockedGraph(model("Gelu", "", x.shape, None), 0)
    found = models.opened(graph.with_kernels({"gelu": {}})).run(None, {"x": x})[0]
    np.testing.assert_array_equal(found[1:8], [0, 0, 0, 0, 60, np.float32(1e30), np.inf])
    assert np.isnan(found[8])


def test_the_other_approximation_is_left_alone() -> None:
    assert not BlockedGraph(model("Gelu", "", (4,), None, approximate="tanh"), 0).sites()
