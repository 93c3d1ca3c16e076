"""Generated code in sessions: only where the user names its library, and only if that is the planned one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import generated_libraries as made
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from test_provider import needs_provider

import rlflow.kernels
from rlflow.errors import ModelError
from rlflow.kernels import KernelPlan, KernelsNotUsed
from rlflow.kernels.generated_code import GeneratedCode

pytestmark = made.NEEDS


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLFLOW_CACHE", os.fspath(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "tuned"
    path.mkdir(mode=0o755)
    path.chmod(0o755)
    return path


@pytest.fixture
def model(folder: Path) -> bytes:
    raw = made.product_model()
    return made.with_plan(raw, made.code_of(made.library(folder / "kernels.so"), raw))


def is_by_code(found: ort.InferenceSession) -> bool:
    """Whether the library did it, whose results are a thousand too large."""
    plain = ort.InferenceSession(made.product_model(), providers=["CPUExecutionProvider"]).run(None, made.feeds())[0]
    difference = found.run(None, made.feeds())[0] - plain
    assert np.allclose(difference, 0, atol=1e-3) or np.allclose(difference, 1000, atol=1e-2)
    return bool(difference[0, 0] > 1)


def test_code_runs_where_its_library_is_named(model: bytes, folder: Path) -> None:
    for _ in range(2):  # the second time, the prepared file is there
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert is_by_code(rlflow.kernels.session(model, generated=folder / "kernels.so"))


@needs_provider
@pytest.mark.parametrize("named", [True, False])
def test_the_execution_provider_runs_code_where_its_library_is_named(model: bytes, folder: Path, named: bool) -> None:
    path, options = folder / "model.onnx", ort.SessionOptions()
    path.write_bytes(model)
    if named:
        assert rlflow.kernels.add_provider(options, path, generated=folder / "kernels.so")
    else:
        with pytest.warns(KernelsNotUsed, match="where its library is named"):
            assert not rlflow.kernels.add_provider(options, path)
    assert is_by_code(ort.InferenceSession(path, options)) == named


def test_code_does_not_run_where_nobody_named_it(model: bytes, folder: Path) -> None:
    rlflow.kernels.session(model, generated=folder / "kernels.so")
    with pytest.warns(KernelsNotUsed, match="does 1 nodes where its library is named"):
        assert not is_by_code(rlflow.kernels.session(model))


def test_another_program_uses_the_prepared_file(model: bytes, folder: Path) -> None:
    path, code = folder / "model.onnx", folder / "kernels.so"
    path.write_bytes(model)
    prepared = rlflow.kernels.prepare(path, generated=code)
    assert prepared != os.fspath(path)
    options = ort.SessionOptions()
    options.add_session_config_entry("rlflow.kernels.generated", os.fspath(code))
    options.register_custom_ops_library(rlflow.kernels.library_path())
    assert is_by_code(ort.InferenceSession(prepared, options, providers=["CPUExecutionProvider"]))


def test_what_is_loaded_is_a_copy_in_a_folder_of_ones_own(model: bytes, folder: Path, own_cache: Path) -> None:
    rlflow.kernels.session(model, generated=folder / "kernels.so")
    (copy,) = (own_cache / "generated").iterdir()
    assert copy.read_bytes() == (folder / "kernels.so").read_bytes()
    assert (own_cache / "generated").stat().st_mode & 0o077 == 0
    copy.unlink()  # the process has it open
    copy.write_bytes(b"something else")
    assert is_by_code(rlflow.kernels.session(model, generated=folder / "kernels.so"))


# --- libraries that are refused ---------------------------------------------------------------------------------------


def gone(path: Path) -> None:
    path.unlink()


def other_bytes(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def writable_by_others(path: Path) -> None:
    path.chmod(0o666)


def in_a_folder_of_others(path: Path) -> None:
    path.parent.chmod(0o777)


def a_link(path: Path) -> None:
    path.rename(path.with_name("real.so"))
    path.symlink_to("real.so")


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (gone, "cannot be opened: No such file"),
        (other_bytes, "its digest differs"),
        (writable_by_others, "Others may write to the file"),
        (in_a_folder_of_others, "Others may write to the folder"),
        (a_link, "cannot be opened"),
        (a_pipe, "should be a regular file"),
        (a_folder, "should be a regular file"),
    ],
)
def test_a_library_that_may_not_be_loaded_is_not(model: bytes, folder: Path, spoil, why: str) -> None:
    spoil(folder / "kernels.so")
    with pytest.warns(KernelsNotUsed, match=why):
        assert not is_by_code(rlflow.kernels.session(model, generated=folder / "kernels.so"))


def test_a_cache_that_others_could_have_written_to_holds_no_code(model: bytes, folder: Path, own_cache: Path) -> None:
    (own_cache / "generated").mkdir(parents=True)
    (own_cache / "generated").chmod(0o777)
    with pytest.warns(KernelsNotUsed, match="Others could have written to"):
        assert not is_by_code(rlflow.kernels.session(model, generated=folder / "kernels.so"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"isa": "avx1024"}, "an instruction set that nobody knows"),
        ({"symbol": "something_else"}, "holds no generated code of this version"),
        ({"inputs": 9}, "is damaged"),
        ({"shapes": "99, 1, 5, 2, 5, 7, 2, 1, 7"}, "is damaged"),
    ],
)
def test_a_library_of_another_form_is_refused(folder: Path, changes: dict, why: str) -> None:
    raw = made.product_model()
    model = made.with_plan(raw, made.code_of(made.library(folder / "kernels.so", **changes), raw))
    with pytest.warns(KernelsNotUsed, match=why):
        assert not is_by_code(rlflow.kernels.session(model, generated=folder / "kernels.so"))


def test_a_processor_without_the_instruction_set_runs_the_plain_model(folder: Path) -> None:
    """RLFLOW_KERNELS_ISA is read once, so it needs a process of its own."""
    raw = made.product_model()
    path = folder / "model.onnx"
    path.write_bytes(
        made.with_plan(raw, made.code_of(made.library(folder / "kernels.so", isa="avx2"), raw, isa="avx2"))
    )
    script = (
        "import sys, warnings, numpy as np, rlflow.kernels\n"
        "with warnings.catch_warnings(record=True) as found:\n"
        "    warnings.simplefilter('always')\n"
        "    session = rlflow.kernels.session(sys.argv[1], generated=sys.argv[2])\n"
        "print(session.run(None, {'x': np.zeros((1, 5), np.float32)})[0].max(), *(one.message for one in found))\n"
    )
    command = [sys.executable, "-c", script, os.fspath(path), os.fspath(folder / "kernels.so")]
    ended = subprocess.run(
        command, env={**os.environ, "RLFLOW_KERNELS_ISA": "portable"}, capture_output=True, text=True, check=True
    )
    assert ended.stdout.startswith("0.0 ")
    assert "The generated code is for avx2, and the kernels use portable here" in ended.stdout


# --- plans that are refused -------------------------------------------------------------------------------------------

SHAPES = [[[1, 5], [5, 7], [1, 7]]]
CHOICE = {"node": "product", "kind": "generated-product", "sizes": [5, 7, 0], "function": 0, "ratio": 1.5}
CODE = {"digest": "0" * 64, "isa": "avx2", "functions": SHAPES, "choices": [CHOICE]}


def test_a_plan_with_code_prints_and_parses() -> None:
    code = GeneratedCode.parse(CODE)
    plan = KernelPlan("1.0", 8, 1, 1.5, (), code)
    assert KernelPlan.parse(plan.text()) == plan
    assert json.loads(plan.text())["version"] == 3
    assert json.loads(KernelPlan("1.0", 8, 1, 1.5, ()).text())["version"] == 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"digest": "0" * 63}, "no SHA-256"),
        ({"digest": "../../etc/passwd" + "0" * 48}, "no SHA-256"),
        ({"digest": "A" * 64}, "no SHA-256"),
        ({"digest": "0" * 64 + "\n"}, "no SHA-256"),
        ({"isa": "mmx"}, "the generated code is for 'mmx'"),
        ({"isa": None}, "the field 'isa'"),
        ({"path": "/tmp/kernels.so"}, "unknown field 'path'"),
        ({"functions": []}, "functions is no list of 1 to 1024"),
        ({"functions": [[[1, 5]]]}, "no list of 2 to 5"),
        ({"functions": [[[1, 5], [0, 7]]]}, "the field 'a shape' is 0"),
        ({"functions": [[[1, 5], [-5, 7]]]}, "the field 'a shape' is -5"),
        ({"functions": [[[1, 5], [1.5, 7]]]}, "the field 'a shape' is 1.5"),
        ({"functions": [[[1, 5], [[5], 7]]]}, "the field 'a shape'"),
        ({"functions": [[[1] * 9, [1, 7]]]}, "no list of 1 to 8"),
        ({"choices": []}, "choices is no list of 1 to 4096"),
        ({"choices": [CHOICE, CHOICE]}, "two of its choices are for one node"),
        ({"choices": [{**CHOICE, "function": 1}]}, "the field 'function' is 1"),
        ({"choices": [{**CHOICE, "function": -1}]}, "the field 'function' is -1"),
        ({"choices": [{**CHOICE, "function": True}]}, "the field 'function' is True"),
        ({"choices": [{**CHOICE, "library": "/tmp/a.so"}]}, "unknown field 'library'"),
        ({"choices": [{**CHOICE, "ratio": "fast"}]}, "the field 'ratio'"),
        ({"choices": [{**CHOICE, "sizes": []}]}, "sizes is no list of 1 to 16"),
    ],
)
def test_an_edited_description_of_code_is_refused(changes: dict, why: str) -> None:
    plan = json.loads(KernelPlan("1.0", 8, 1, 1.5, (), GeneratedCode.parse(CODE)).text())
    with pytest.raises(ModelError, match="plan of kernels") as refusal:
        KernelPlan.parse(json.dumps({**plan, "generated": {**CODE, **changes}}))
    assert why in str(refusal.value)


def test_a_plan_of_the_old_form_names_no_code() -> None:
    plan = json.loads(KernelPlan("1.0", 8, 1, 1.5, (), GeneratedCode.parse(CODE)).text())
    with pytest.raises(ModelError, match="unknown field 'generated'"):
        KernelPlan.parse(json.dumps({**plan, "version": 2}))


@pytest.mark.parametrize(
    "changes",
    [
        {"functions": (((1, 5), (5, 8), (1, 8)),)},
        {"functions": (((1, 5), (5, 7), (1, 7000)),)},
        {"functions": (((1, 5), (7,)),)},
        {"functions": (((100, 5), (5, 7), (100, 7)),)},
        {"functions": (((1, 4), (5, 7), (1, 7)),)},
    ],
)
def test_shapes_that_the_node_cannot_have_leave_it_to_the_runtime(folder: Path, changes: dict) -> None:
    raw = made.product_model()
    code = made.code_of(made.library(folder / "kernels.so"), raw, **changes)
    with pytest.warns(KernelsNotUsed, match="none of the plan's nodes"):
        assert not is_by_code(rlflow.kernels.session(made.with_plan(raw, code), generated=folder / "kernels.so"))


def test_shapes_that_the_library_does_not_take_leave_the_model_to_the_runtime(folder: Path) -> None:
    """The plan says two rows, and the model has two; the library takes one."""
    raw = made.product_model(2)
    code = made.code_of(made.library(folder / "kernels.so"), raw, (2, made.DEPTH))
    with pytest.warns(KernelsNotUsed, match=r"input 0 is \[2, 5\]; the code is for \[1, 5\]"):
        found = rlflow.kernels.session(made.with_plan(raw, code), generated=folder / "kernels.so")
    assert found.run(None, {"x": np.zeros((2, made.DEPTH), np.float32)})[0].tolist() == [[0.0] * made.COLUMNS] * 2


def test_a_plan_that_lies_of_the_shapes_leaves_the_model_to_the_runtime(folder: Path, own_cache: Path) -> None:
    """Plan and library agree on one row, and the model has two."""
    raw = made.product_model(2)
    code = made.code_of(made.library(folder / "kernels.so"), raw)
    for _ in range(2):  # nothing was kept that the second time would find
        with pytest.warns(KernelsNotUsed, match="the generated code does not run in this model"):
            found = rlflow.kernels.session(made.with_plan(raw, code), generated=folder / "kernels.so")
        assert found.run(None, {"x": np.zeros((2, made.DEPTH), np.float32)})[0].shape == (2, made.COLUMNS)
    assert not list(own_cache.glob("kernels/*.onnx"))


def test_the_library_looks_at_shapes_itself_before_the_code_is_called(model: bytes, folder: Path) -> None:
    """Programs in other languages open what they like: here, the prepared file of one row with two."""
    path = folder / "model.onnx"
    path.write_bytes(model)
    prepared = onnx.load(rlflow.kernels.prepare(path, generated=folder / "kernels.so"))
    for value in (*prepared.graph.input, *prepared.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 2
    options = ort.SessionOptions()
    options.add_session_config_entry("rlflow.kernels.generated", os.fspath(folder / "kernels.so"))
    options.register_custom_ops_library(rlflow.kernels.library_path())
    found = ort.InferenceSession(prepared.SerializeToString(), options, providers=["CPUExecutionProvider"])
    with pytest.raises(Exception, match=r"input 0 is \[2, 5\]; the code is for \[1, 5\]"):
        found.run(None, {"x": np.zeros((2, made.DEPTH), np.float32)})


def test_code_that_fails_leaves_the_model_to_the_runtime(folder: Path) -> None:
    raw = made.product_model()
    model = made.with_plan(raw, made.code_of(made.library(folder / "kernels.so", status=1), raw))
    with pytest.warns(KernelsNotUsed, match="the code reported a failure"):
        assert not is_by_code(rlflow.kernels.session(model, generated=folder / "kernels.so"))


def test_inputs_that_the_model_itself_refuses_say_nothing_of_the_code(folder: Path) -> None:
    """Made-up inputs may be no inputs of this model: then the code is used as planned."""
    raw = made.product_model(picky=True)
    model = made.with_plan(raw, made.code_of(made.library(folder / "kernels.so"), raw))
    found = rlflow.kernels.session(model, generated=folder / "kernels.so")
    assert found.run(None, {**made.feeds(), "n": np.array([7], np.int64)})[0].max() > 900


def test_inputs_that_cannot_be_made_up_say_nothing_of_the_code(folder: Path) -> None:
    """Strings are such."""
    built = onnx.ModelProto.FromString(made.product_model())
    for values, name in ((built.graph.input, "text"), (built.graph.output, "same")):
        values.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.STRING, [1]))
    built.graph.node.append(onnx.helper.make_node("Identity", ["text"], ["same"]))
    raw = built.SerializeToString()
    model = made.with_plan(raw, made.code_of(made.library(folder / "kernels.so"), raw))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rlflow.kernels.session(model, generated=folder / "kernels.so")
    assert found.run(["y"], {**made.feeds(), "text": np.array(["a"], object)})[0].max() > 900


def test_a_library_beside_a_plan_without_code_is_not_loaded(folder: Path) -> None:
    from rlflow.kernels import Choice

    choices = (Choice("product", (5, 7), "row-product", 1.2),)
    with pytest.warns(KernelsNotUsed, match="knows of no generated code"):
        made_session = rlflow.kernels.session(
            made.with_plan(made.product_model(), None, choices), generated=made.library(folder / "kernels.so")
        )
    assert not is_by_code(made_session)


@pytest.mark.parametrize("path", ["kernels.so", "../kernels.so", "file:///tmp/kernels.so", "/nowhere/kernels.so"])
def test_the_kernels_themselves_take_absolute_paths_of_libraries_only(path: str) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("rlflow.kernels.generated", path)
    with pytest.raises(Exception, match=r"named by an absolute path|cannot be loaded"):
        options.register_custom_ops_library(rlflow.kernels.library_path())


def test_a_model_cannot_name_a_library(folder: Path) -> None:
    """Without the entry in the session's options there is no such operator, whatever the attributes say."""
    from onnx import TensorProto, helper

    path = os.fspath(made.library(folder / "kernels.so"))
    node = helper.make_node("Generated", ["x"], ["y"], domain="rlflow.kernels", function=0, library=path)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 5]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("rlflow.kernels", 1)]
    raw = helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:]), opset_imports=opsets, ir_version=9)
    options = ort.SessionOptions()
    options.register_custom_ops_library(rlflow.kernels.library_path())
    with pytest.raises(Exception, match="not a registered function"):
        ort.InferenceSession(raw.SerializeToString(), options, providers=["CPUExecutionProvider"])


def test_a_model_with_open_sizes_has_no_place_for_code() -> None:
    assert [site.name for site in made.sites(made.product_model())] == ["product"]
    assert made.sites(made.product_model("N")) == []
    assert made.sites(made.product_model(2)) != []
