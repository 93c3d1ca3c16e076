"""What a model may claim about itself: its data files wherever it names them, its lengths, its names, its functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from model_tools import BOOL, model, random, run, tensor, value
from onnx import helper

from rlflow.errors import ModelError
from rlflow.frontends import load_model, save_model

WEIGHT = random(3, 3)


def outside(name: str = "w", **entries: str) -> onnx.TensorProto:
    """A tensor whose elements are in ``weights.bin``, or said to be."""
    found = onnx.TensorProto(name=name, data_type=1, dims=[3, 3], data_location=onnx.TensorProto.EXTERNAL)
    for key, text in {"location": "weights.bin", "offset": "0", "length": "36", **entries}.items():
        if text:
            found.external_data.add(key=key, value=text)
    return found


def in_initializer(weight: onnx.TensorProto) -> onnx.ModelProto:
    built = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", [2, 3])], [value("y", [2, 3])])
    built.graph.initializer.append(weight)
    return built


def in_branch(weight: onnx.TensorProto) -> onnx.ModelProto:
    body = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["t"])], "b", [], [value("t", [2, 3])], [weight])
    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)]
    return model(nodes, [value("x", [2, 3]), value("c", [], BOOL)], [value("y", [2, 3])])


def in_loop(weight: onnx.TensorProto) -> onnx.ModelProto:
    step = [helper.make_node("MatMul", ["s", "w"], ["t"]), helper.make_node("Identity", ["go"], ["on"])]
    given = [value("i", [], onnx.TensorProto.INT64), value("go", [], BOOL), value("s", [2, 3])]
    body = helper.make_graph(step, "b", given, [value("on", [], BOOL), value("t", [2, 3])], [weight])
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)]
    return model(nodes, [value("x", [2, 3])], [value("y", [2, 3])], {"n": np.int64(2)})


def in_constant(weight: onnx.TensorProto) -> onnx.ModelProto:
    nodes = [helper.make_node("Constant", [], ["w"], value=weight), helper.make_node("MatMul", ["x", "w"], ["y"])]
    return model(nodes, [value("x", [2, 3])], [value("y", [2, 3])])


def in_function(weight: onnx.TensorProto) -> onnx.ModelProto:
    inner = [helper.make_node("Constant", [], ["w"], value=weight), helper.make_node("MatMul", ["a", "w"], ["b"])]
    imports = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "Layer", ["a"], ["b"], inner, imports)
    nodes = [helper.make_node("Layer", ["x"], ["y"], domain="own")]
    more = {"functions": [function], "more_opsets": [helper.make_opsetid("own", 1)]}
    return model(nodes, [value("x", [2, 3])], [value("y", [2, 3])], **more)


PLACES = [in_initializer, in_branch, in_loop, in_constant, in_function]
Place = Callable[[onnx.TensorProto], onnx.ModelProto]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "in"
    place.mkdir()
    (place / "weights.bin").write_bytes(WEIGHT.tobytes())
    return place


def written(folder: Path, built: onnx.ModelProto) -> Path:
    (folder / "m.onnx").write_bytes(built.SerializeToString())
    return folder / "m.onnx"


def all_locations(built: onnx.ModelProto) -> bool:
    return b"weights.bin" in built.SerializeToString()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("opset", [17, 6], ids=["read", "passed through"])
def test_external_data_is_carried_from_wherever_it_is(folder: Path, tmp_path: Path, place: Place, opset: int) -> None:
    source = place(outside())
    source.opset_import[0].version = opset
    imported = load_model(written(folder, source))
    assert imported.external
    out = tmp_path / "out.onnx"
    save_model(imported, imported.graph, str(out))
    assert not all_locations(onnx.load(out, load_external_data=False))
    if opset < 7:
        return  # too old for the runtime
    feeds = {"x": random(2, 3, seed=1), "c": np.array(True)}
    whole = place(tensor("w", WEIGHT))
    feeds = {info.name: feeds[info.name] for info in whole.graph.input}
    np.testing.assert_array_equal(run(str(out), feeds)[0], run(whole, feeds)[0])


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"length": "8"}, r"said to be 8 bytes long, and its type and shape \[3, 3\] need 36"),
        ({"length": "1000000000000"}, "said to be 1000000000000 bytes long"),
        ({"length": "1" * 5000}, "the length of its data is '1111"),
        ({"length": "-36"}, "expected a number of bytes"),
        ({"offset": "8"}, "its data ends at byte 44 of 'weights.bin', which has 36"),
        ({"length": "", "offset": "4"}, "ends at byte 40"),
        ({"location": "missing.bin"}, r"'missing\.bin' is not beside the model"),
        ({"location": "../secret.bin"}, "outside the model's directory"),
        ({"location": "/etc/passwd"}, "outside the model's directory"),
        ({"location": "a\0b"}, "outside the model's directory"),
        ({"location": ""}, "is not beside the model"),
    ],
)
def test_data_files_that_are_not_what_they_are_said_to_be(
    folder: Path, place: Place, entries: dict[str, str], words: str
) -> None:
    (folder.parent / "secret.bin").write_bytes(bytes(64))
    with pytest.raises(ModelError, match=words):
        load_model(written(folder, place(outside(**entries))))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_negative_dimension_is_refused(place: Place) -> None:
    weight = tensor("w", WEIGHT.reshape(9))
    weight.dims[0] = -9
    with pytest.raises(ModelError, match=r"its shape is \[-9\]; expected no negative dimension"):
        load_model(place(weight))


def calls(levels: int, last: str) -> onnx.ModelProto:
    """Functions that call the next one twice; the last one calls ``last``."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = []
    for level in range(levels):
        callee, domain = (f"F{level + 1}", "own") if level + 1 < levels else (last, "own" if last == "F0" else "")
        inner = [helper.make_node(callee, [a], [b], domain=domain) for a, b in (("a", "h"), ("h", "b"))]
        functions.append(helper.make_function("own", f"F{level}", ["a"], ["b"], inner, imports))
    nodes = [helper.make_node("F0", ["x"], ["y"], domain="own")]
    more = {"functions": functions, "more_opsets": [helper.make_opsetid("own", 1)]}
    return model(nodes, [value("x", [2])], [value("y", [2])], **more)


@pytest.mark.parametrize(
    ("levels", "last", "words"),
    [
        (40, "Relu", r"with its functions written out, the given model has more than 10\^12 nodes"),
        (1, "F0", "the function F0 of the given model calls itself"),
        (3, "F0", "calls itself"),
        (2000, "F0", "calls itself"),
    ],
)
def test_functions_that_never_end(levels: int, last: str, words: str) -> None:
    began = time.monotonic()
    with pytest.raises(ModelError, match=words):
        load_model(calls(levels, last))
    assert time.monotonic() - began < 5


def test_functions_that_call_functions_are_fine() -> None:
    assert load_model(calls(8, "Relu")).passthrough is None


def broken_texts() -> Iterator[tuple[str, bytes]]:
    """Each text of a model, made something else than UTF-8."""
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["text_h"], name="text_node", doc_string="text_doc", alpha=2.0),
        helper.make_node("Softmax", ["text_h"], ["y"], axis=-1),
    ]
    built = model(nodes, [value("x", ["text_dim", 3])], [value("y", None)], {"w": WEIGHT}, doc_string="text_model")
    built.metadata_props.add(key="text_key", value="v")
    built.graph.doc_string, built.graph.name = "text_graphdoc", "text_graph"
    built.graph.value_info.append(value("text_h", [2, 3]))
    raw = built.SerializeToString()
    for word in ("dim", "h", "node", "doc", "model", "key", "graphdoc", "graph"):
        yield word, raw.replace(f"text_{word}".encode(), b"\xff\xfe\xff\xfe\xff" + word.encode())
    yield "alpha", raw.replace(b"alpha", b"\xff\xfe\xff\xfe\xff")
    yield "Gemm", raw.replace(b"Gemm", b"\xff\xfe\xff\xfe")


@pytest.mark.parametrize("raw", [raw for _, raw in broken_texts()], ids=[name for name, _ in broken_texts()])
def test_names_that_are_no_text(raw: bytes) -> None:
    with pytest.raises(ModelError, match="not UTF-8 text"):
        load_model(raw)


def test_a_dimension_name_of_a_megabyte() -> None:
    began = time.monotonic()
    built = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", ["n" * 1_000_000])], [value("y", None)])
    with pytest.raises(ModelError, match="names a dimension with 1000000 characters; expected 10000 at most"):
        load_model(built)
    assert time.monotonic() - began < 5
