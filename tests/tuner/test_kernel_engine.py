"""Our own kernels as an engine: a small model is tuned for real."""

from __future__ import annotations

import numpy as np
import pytest

from rlflow.errors import CostError
from rlflow.kernels import spaces, unavailable
from rlflow.kernels.algorithms import ALGORITHMS
from rlflow.kernels.preparing import block_here
from rlflow.search import Budget
from rlflow.tuner import KernelEngine, Tuner, method
from rlflow.tuner.engines import INVALID
from rlflow.tuner.kernel_engine import OWN, space_of
from tests.kernels import blocked_models

pytestmark = [
    pytest.mark.skipif(unavailable() is not None, reason=str(unavailable())),
    pytest.mark.skipif(
        unavailable() is None and not block_here(), reason="this processor's ONNX Runtime has no blocked layout"
    ),
]


@pytest.fixture(scope="module")
def engine():
    model = blocked_models.small_network(16, 16)
    made = KernelEngine.of(model, {"x": np.zeros((1, 3, 16, 16), dtype=np.float32)})
    yield made
    made.close()


def test_a_space_has_every_point_of_the_kernels(engine) -> None:
    assert {"winograd-2x2", "winograd-4x4"} <= {name for name, one in ALGORITHMS.items() if one.kind == "convolution"}
    for kind in {one.kind for one in ALGORITHMS.values()}:
        space, names = space_of(kind), [name for name, one in ALGORITHMS.items() if one.does(kind)]
        assert [one.name for one in space.sketches] == [OWN, *names]
        points = [np.prod([len(values) for values in spaces()[name].values()]) for name in names]
        assert space.size == 1 + sum(points)


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ((10, 24), ["row-product"]),
        ((64, 48), ["row-product", "blocked-product"]),
        ((64, 96), ["row-product", "product-strassen", "blocked-product"]),
    ],
)
def test_a_space_has_what_can_do_the_sizes(sizes: tuple[int, int], names: list[str]) -> None:
    assert [one.name for one in space_of("product", sizes).sketches] == [OWN, *names]


def test_programs_are_the_points_that_a_plan_keeps(engine) -> None:
    found = [engine.attributes(0, one) for one in engine.subgraphs[0].space.programs()]
    assert found[0] is None
    assert found[1] == ("winograd-2x2", {})  # 0, "by the caches", is the default, and the least value
    for one in found[1:]:
        assert one is not None
        ALGORITHMS[one[0]].attributes(one[1])  # raises for what is no point
    assert len({(name, *sorted(tuning.items())) for name, tuning in found[1:]}) == len(found) - 1


def test_a_model_is_tuned(engine) -> None:
    result = Tuner(engine, method("random"), 0).run(Budget(measurements=8 * len(engine.subgraphs)))
    assert all(one is not None for one in result.best)
    assert all(0 < seconds < 1.0 for one in result.rounds for seconds in one.seconds)
    assert result.rounds[-1].cpu_seconds > 0
    assert "kernels" in engine.place and "onnxruntime" in engine.place


def test_sites_that_are_alike_are_one_subgraph(engine) -> None:
    sites = [site for group in engine.groups for site in group]
    assert sorted(site.name for site in sites) == ["c_nchwc", "y_nchwc"]
    assert all(len({(site.kind, site.sizes) for site in group}) == 1 for group in engine.groups)


def test_a_crash_makes_a_program_invalid(engine, monkeypatch) -> None:
    from rlflow.errors import RuntimeCrashed

    def crash(attributes, runs):
        raise RuntimeCrashed("it died")

    monkeypatch.setattr(engine, "times", crash)
    program = next(iter(engine.subgraphs[0].space.programs()))
    assert engine.measure(0, [program]) == [INVALID]


def test_a_model_without_a_place_for_kernels_is_refused() -> None:
    from onnx import TensorProto, helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Sigmoid", ["x"], ["y"])], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    with pytest.raises(CostError, match="no node that a kernel can do"):
        KernelEngine.of(model.SerializeToString(), {"x": np.zeros((2, 3), dtype=np.float32)})
