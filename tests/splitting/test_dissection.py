"""Models taken apart: pieces that run, constants where they are needed, and nothing that is not."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest
from split_models import branches, dense, mlp, with_body, with_sequence

from rlflow.errors import ModelError
from rlflow.frontends.dissection import Dissection, Piece, Tensor, dtype_name, onnx_number
from rlflow.runtime import Worker
from rlflow.splitting.cutting import chain_of
from rlflow.splitting.node_costs import learn_types


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    onnx.checker.check_model(model, full_check=True)
    names = [info.name for info in model.graph.output]
    return dict(zip(names, onnx.reference.ReferenceEvaluator(model).run(names, feeds), strict=True))


def run_chain(taken: Dissection, cuts: list[int], feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    ends = [0, *cuts, len(taken.nodes)]
    known = dict(feeds)
    for k, (begin, end) in enumerate(pairwise(ends)):
        piece = taken.piece(range(begin, end), f"part {k}", last=end == len(taken.nodes))
        known |= run(piece.model, {name: known[name] for name in piece.inputs})
    return {name: known[name] for name in taken.outputs}


FEEDS = {
    "mlp": (mlp, {"x": np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)}),
    "branches": (
        branches,
        {
            "x": np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32),
            "late": np.ones((2, 8), np.float32),
            "through": np.array([4, 5], np.float32),
        },
    ),
    "body": (with_body, {"x": np.random.default_rng(3).standard_normal((4, 4)).astype(np.float32)}),
}


@pytest.mark.parametrize("name", FEEDS)
def test_every_cut_computes_what_the_whole_computes(name: str) -> None:
    make, feeds = FEEDS[name]
    model = make()
    whole = run(model, feeds)
    taken = Dissection(model)
    for cut in range(1, len(taken.nodes)):
        found = run_chain(taken, [cut], feeds)
        assert list(found) == list(whole)
        assert all(np.array_equal(found[one], whole[one]) for one in whole), cut


def test_images_of_other_pieces_go_through_a_pool_that_changes_nothing() -> None:
    taken = Dissection(dense())
    feeds = {"x": np.random.default_rng(5).standard_normal((1, 4, 12, 12)).astype(np.float32)}
    whole = run(dense(), feeds)
    known = feeds
    for chosen in (range(9), range(9, 22)):
        piece = taken.piece(chosen, "part", last=True, pooled=True)
        pools = [node for node in piece.model.graph.node if node.op_type == "AveragePool"]
        assert [list(pool.input) for pool in pools] == ([] if chosen.start == 0 else [["v0"], ["v1"], ["v2"]])
        views = {pool.output[0] for pool in pools}
        others = [name for node in piece.model.graph.node if node not in pools for name in node.input]
        assert views <= set(others)
        assert not views or not {"v0", "v1", "v2"}.intersection(others)
        known = known | run(piece.model, {name: known[name] for name in piece.inputs})
    assert np.array_equal(known["y"], whole["y"])


def test_what_is_no_image_is_handed_over_as_it_is() -> None:
    piece = Dissection(mlp()).piece(range(6, 12), "part", pooled=True)
    assert not any(node.op_type == "AveragePool" for node in piece.model.graph.node)
    narrow = Dissection(dense(channels=12)).piece(range(9, 22), "part", pooled=True)
    assert not any(node.op_type == "AveragePool" for node in narrow.model.graph.node)


def test_pieces_hold_their_own_weights_only() -> None:
    taken = Dissection(mlp())
    first, second = (taken.piece(one, "part") for one in (range(6), range(6, 12)))
    assert [tensor.name for tensor in first.model.graph.initializer] == ["w0", "b0", "w1", "b1"]
    assert [tensor.name for tensor in second.model.graph.initializer] == ["w2", "b2", "w3"]
    assert (first.inputs, first.outputs) == (("x",), ("r1",))
    assert (second.inputs, second.outputs) == (("r1",), ("y",))
    assert second.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert taken.weights[7] == ["b2"]
    assert taken.weight_bytes["w0"] == 4 * 16 * 16


def test_constants_are_no_work_and_what_nothing_needs_is_gone() -> None:
    taken = Dissection(branches())
    assert [node.op_type for node in taken.nodes] == [
        "MatMul", "Mul", "Shape", "Tanh", "Reshape", "Add", "Add", "Add",
    ]  # fmt: skip
    late = taken.piece(range(5, 8), "part", last=True)
    assert [node.op_type for node in late.model.graph.node[:2]] == ["Constant", "Neg"]
    assert late.inputs == ("late", "a", "c")
    assert late.outputs == ("y", "w", "minus_half")
    assert taken.places == [2, 3, 4, 5, 6, 7, 8, 9]


def test_only_called_functions_go_along() -> None:
    taken = Dissection(with_body())
    assert not taken.piece([0, 1], "part").model.functions
    assert [one.name for one in taken.piece([4], "part").model.functions] == ["Twice"]
    assert "w" in taken.weights[3]
    assert "a" in taken.reads[3]


def test_sizes_bind_open_dimensions() -> None:
    taken = Dissection(mlp())
    assert taken.value_bytes({})["r0"] == 4 * 16
    assert taken.value_bytes({"N": 32})["r0"] == 4 * 16 * 32
    assert taken.operations({"N": 32})[0] == 32 * 16 * 16
    assert taken.tensor("r0").shape == ("N", 16)
    assert taken.tensor("r0").carried


def test_a_sequence_is_not_cut() -> None:
    taken = Dissection(with_sequence())
    chain = chain_of(taken, taken.value_bytes({}), np.ones(3), 1e9)
    assert np.isfinite(chain.handed).tolist() == [True, True, False, True]


def test_live_bytes_of_a_chain() -> None:
    taken = Dissection(mlp())
    sizes = taken.value_bytes({"N": 2})
    chain = chain_of(taken, sizes, np.ones(12), 1e9)
    assert chain.alive is not None
    assert chain.alive.tolist() == [2 * 4 * 2 * 16] * 12
    assert chain.memory(0, 3) == 4 * (16 * 16 + 16) + 256


def test_sparse_weights_stay_whole() -> None:
    model = mlp()
    values = onnx.helper.make_tensor("s", onnx.TensorProto.FLOAT, [1], [1.0])
    indices = onnx.helper.make_tensor("i", onnx.TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [4]))
    with pytest.raises(ModelError, match="sparse"):
        Dissection(model)


def test_a_weight_that_is_an_input_becomes_a_weight() -> None:
    model = mlp()
    model.graph.input.append(onnx.helper.make_tensor_value_info("b0", 1, [16]))
    taken = Dissection(model)
    assert taken.inputs == ["x"]
    assert "also listed as inputs" in taken.notes[0]


def test_external_weights_are_carried(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(mlp(width=64), path, save_as_external_data=True, location="m.bin", size_threshold=0)
    taken = Dissection(path)
    piece: Piece = taken.piece(range(6), "part")
    written = taken.write(piece, tmp_path / "part.onnx")
    assert written.graph.initializer[0].raw_data
    feeds = {"x": np.ones((2, 64), np.float32)}
    whole = Dissection(onnx.load(path))
    assert np.array_equal(
        run(onnx.load(tmp_path / "part.onnx"), feeds)["r1"], run(whole.piece(range(6), "part").model, feeds)["r1"]
    )


def test_what_the_runtime_knows_is_learnt() -> None:
    """Inference stops at an operator of another domain; ONNX Runtime knows it."""
    model = mlp(layers=2)
    model.graph.node.insert(3, onnx.helper.make_node("Gelu", ["r0"], ["g"], domain="com.microsoft"))
    model.graph.node[4].input[0] = "g"
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    taken = Dissection(model)
    assert taken.untyped() == ["g", "p1", "s1"]
    with Worker() as worker:
        learn_types(worker, model.SerializeToString(), taken)
    assert taken.untyped() == []
    assert taken.tensor("g") == Tensor("g", "float32", ("N", 16))
    assert taken.value_bytes({"N": 3})["g"] == 4 * 3 * 16


def test_weights_of_the_oldest_models_are_inputs_no_more() -> None:
    model = mlp()
    model.ir_version = 3
    model.graph.input.extend(
        onnx.helper.make_tensor_value_info(one.name, one.data_type, one.dims) for one in model.graph.initializer
    )
    piece = Dissection(model).piece(range(6), "part")
    onnx.checker.check_model(piece.model, full_check=True)
    assert piece.inputs == ("x",)


@pytest.mark.parametrize("name", ["bool", "uint8", "int64", "float16", "bfloat16", "float64", "string"])
def test_names_of_types_go_both_ways(name: str) -> None:
    assert dtype_name(onnx_number(name)) == name
