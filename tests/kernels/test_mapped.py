"""Graphs with kernels as files that share their weights."""

from __future__ import annotations

from pathlib import Path

import blocked_models as models
import numpy as np
import onnx
import pytest

from rlflow.errors import ModelError
from rlflow.frontends.blocked import BlockedGraph, MappedGraph, apart
from rlflow.kernels import ALGORITHMS, unavailable
from rlflow.kernels.preparing import block_here
from rlflow.runtime import inprocess

pytestmark = pytest.mark.skipif(
    unavailable() is not None or not block_here(), reason=str(unavailable() or "no blocked tensors on this processor")
)


@pytest.fixture(scope="module")
def graph() -> BlockedGraph:
    return BlockedGraph(inprocess.optimised(models.small_network(channels=32)), block_here())


def mapped_in(folder: Path) -> MappedGraph:
    """The same graph, made from weights that are in a file from the beginning."""
    source, weights = apart(models.small_network(channels=32), str(folder))
    optimised = folder / "optimised.onnx"
    optimised.write_bytes(inprocess.optimised(source))
    found = MappedGraph(str(optimised), block_here(), weights)
    optimised.unlink()
    return found


def attributes(graph: BlockedGraph, algorithm: str) -> dict[str, dict[str, int]]:
    return {site.name: ALGORITHMS[algorithm].attributes() for site in graph.sites()} if algorithm else {}


@pytest.mark.parametrize("algorithm", ["", "winograd-2x2", "winograd-4x4-kept"])
def test_a_mapped_graph_computes_the_same_bits(graph: BlockedGraph, algorithm: str, tmp_path: Path) -> None:
    mapped, some = mapped_in(tmp_path), attributes(graph, algorithm)
    assert (mapped.sites(), mapped.weight_bytes) == (graph.sites(), graph.weight_bytes)
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 3, 24, 24)).astype(np.float32)}
    whole, file = (models.opened(one.with_kernels(some)).run(None, feeds)[0] for one in (graph, mapped))
    np.testing.assert_array_equal(whole, file)


def test_weights_and_their_other_forms_are_written_once(graph: BlockedGraph, tmp_path: Path) -> None:
    mapped, weights, sizes = mapped_in(tmp_path), tmp_path / "weights.bin", []
    for algorithm in ("winograd-2x2", "", "winograd-4x4-kept", "winograd-2x2", "winograd-4x4-kept"):
        path = Path(mapped.with_kernels(attributes(graph, algorithm)))
        sizes.append(weights.stat().st_size)
        assert path.stat().st_size < 20_000
    assert sizes[0] == sizes[1] < sizes[2] == sizes[3] == sizes[4]
    kept = onnx.load(path, load_external_data=False).graph
    read = {name for node in kept.node for name in node.input}
    assert {one.name for one in kept.initializer} <= read
    assert sum(name.endswith("transformed for 4") for name in read) == len(graph.sites())


def test_a_name_that_is_no_site_is_refused(graph: BlockedGraph, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no node 'nothing' that the kernels can do"):
        mapped_in(tmp_path).with_kernels({"nothing": {"tile": 2}})
