"""TVM's programs as sketches of a tuning, and the library that is left of them, which runs where TVM is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from rlflow.errors import CostError, UsageError
from rlflow.frontends import blocked
from rlflow.kernels import KEY, KernelPlan
from rlflow.kernels import unavailable as no_kernels
from rlflow.search import Budget
from rlflow.tuner import Tuner, generated_engine, loop_features, method
from rlflow.tuner.generated_engine import GENERATED, ChosenCode, GeneratedEngine
from rlflow.tuner.kernel_engine import OWN

REASON = no_kernels() or generated_engine.unavailable()
needs_tvm = pytest.mark.skipif(REASON is not None, reason=str(REASON))
#: Runs a model with its code where nothing may import TVM, and writes the outputs.
SCRIPT = """
import sys, warnings

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tvm", "tvm_ffi"):
            raise ImportError(f"{name} is forbidden here")

sys.meta_path.insert(0, Forbidden())
warnings.simplefilter("error")
import numpy as np
import rlflow.kernels

session = rlflow.kernels.session(sys.argv[1], generated=sys.argv[2])
np.save(sys.argv[4], session.run(None, {"x": np.load(sys.argv[3])})[0])
assert not any(name.startswith("tvm") for name in sys.modules)
"""


def model() -> bytes:
    """A depthwise convolution of 6 channels with its bias and Relu, one of 16 in blocks with its bias and Clip, one
    in groups of 3, and a product of one row.
    """
    rng = np.random.default_rng(7)
    shapes = {"w": (6, 1, 3, 3), "b": (6,), "v": (6, 3, 3, 3), "m": (6, 40)}
    shapes |= {"w1": (16, 6, 1, 1), "w2": (16, 1, 3, 3), "b2": (16,), "w3": (6, 16, 1, 1)}
    initial = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name) for name, shape in shapes.items()
    ]
    initial += [numpy_helper.from_array(np.float32(value), name) for name, value in (("least", 0), ("most", 6))]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], name="depthwise", group=6, pads=[1, 0, 1, 2], strides=[2, 1]),
        helper.make_node("Relu", ["a"], ["r"], name="relu"),
        helper.make_node("Conv", ["r", "w1"], ["s"], name="up"),
        helper.make_node("Conv", ["s", "w2", "b2"], ["t"], name="blocked", group=16, pads=[1] * 4),
        helper.make_node("Clip", ["t", "least", "most"], ["u"], name="clip"),
        helper.make_node("Conv", ["u", "w3"], ["q"], name="down"),
        helper.make_node("Conv", ["q", "v"], ["g"], name="grouped", group=2, dilations=[1, 2]),
        helper.make_node("GlobalAveragePool", ["g"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("MatMul", ["f", "m"], ["y"], name="product"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6, 13, 11])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 40])
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], initial), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    return made.SerializeToString()


def feeds() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).standard_normal((1, 6, 13, 11)).astype(np.float32)}


@pytest.fixture(scope="module")
def engine():
    made = GeneratedEngine.of(model(), feeds())
    yield made
    made.close()


@needs_tvm
def test_its_sketches_come_after_the_other_ones(engine) -> None:
    spaces = [[one.name for one in subgraph.space.sketches] for subgraph in engine.subgraphs]
    with_code = [names for names in spaces if GENERATED in names]
    assert all(names[0] == OWN for names in spaces)
    assert all(set(names[names.index(GENERATED) :]) == {GENERATED} for names in with_code)
    assert len(with_code) == 4
    assert sum("depthwise" in names for names in with_code) == (1 if engine.graph.block else 2)
    assert sum("row-product" in names for names in with_code) == 1
    assert "tvm" in engine.place and "onnxruntime" in engine.place


@needs_tvm
def test_a_model_of_costs_sees_what_the_loops_of_generated_code_do(engine) -> None:
    seen = 0
    for number, subgraph in enumerate(engine.subgraphs):
        programs = subgraph.space.random(np.random.default_rng(0), 12)
        found, width = engine.features(number, programs), loop_features.COUNT
        code = [engine.is_generated(number, one) for one in programs]
        assert np.isfinite(found).all()
        if any(code):
            seen += 1
            assert [bool(row.any()) for row in found[:, -width:]] == code
    assert seen == 4


@needs_tvm
def test_what_was_tuned_runs_without_tvm(engine, tmp_path: Path) -> None:
    tuner = Tuner(engine, method("random", batch=4), 0)
    tuner.run(Budget(measurements=8 * len(engine.groups)))
    chosen = []
    for number, task in enumerate(tuner.tasks):
        code = [one for one in task.ranked() if engine.is_generated(number, one)]
        chosen += [ChosenCode(number, one, 1.5) for one in code[:1]]
    folder = tmp_path / "tuned"
    folder.mkdir(mode=0o755)
    code = engine.write_library(folder / "kernels.so", chosen)
    assert [one.function for one in code.choices] == [0, 1, 2, 3]
    plan = KernelPlan("1.0", engine.graph.block, 1, 1.5, (), code)
    (folder / "model.onnx").write_bytes(blocked.with_metadata(model(), KEY, plan.text()))
    np.save(tmp_path / "x.npy", feeds()["x"])
    files = [folder / "model.onnx", folder / "kernels.so", tmp_path / "x.npy", tmp_path / "y.npy"]
    environment = {**os.environ, "RLFLOW_CACHE": os.fspath(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", SCRIPT, *map(os.fspath, files)], check=True, env=environment)
    expected = ort.InferenceSession(model(), providers=["CPUExecutionProvider"]).run(None, feeds())[0]
    found = np.load(tmp_path / "y.npy")
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()
    (prepared,) = (tmp_path / "cache" / "kernels").glob("*.onnx")
    assert prepared.read_bytes().count(b"Generated") == 4


@needs_tvm
def test_a_model_without_a_place_for_code_is_refused() -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 16]) for name in "xy"]
    scale = numpy_helper.from_array(np.ones(16, dtype=np.float32), "s")
    graph = helper.make_graph(
        [helper.make_node("LayerNormalization", ["x", "s"], ["y"])], "g", *[[e] for e in ends], [scale]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with pytest.raises(CostError, match="no node that generated code could do"):
        GeneratedEngine.of(made.SerializeToString(), {"x": np.zeros((2, 16), dtype=np.float32)})


@pytest.mark.parametrize(
    ("generate", "trees", "cost"),
    [(True, None, "both"), (True, "it is not there", "kernel-ridge"), (False, None, "kernel-ridge")],
)
def test_generated_code_is_judged_by_trees_where_they_are(
    monkeypatch, generate: bool, trees: str | None, cost: str
) -> None:
    from rlflow import tuned

    monkeypatch.setattr(tuned.BoostedTrees, "available", lambda: trees)
    assert tuned._config("evolutionary", generate).cost == cost


def test_without_tvm_it_says_what_to_install(monkeypatch, tmp_path: Path) -> None:
    from rlflow.tuned import tune

    sentence = "TVM is not installed: pip install 'rlflow[tuner]'"
    monkeypatch.setattr("rlflow.tuner.generated_engine.tvm_engine.unavailable", lambda: sentence)
    with pytest.raises(UsageError, match=r"rlflow\[tuner\]"):
        tune(model(), tmp_path / "out", by="random", generate=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("more", [{"threads": 2}, {"workers": "2"}])
def test_code_is_for_one_thread_and_measured_here(monkeypatch, tmp_path: Path, more: dict) -> None:
    from rlflow.tuned import tune

    monkeypatch.setattr("rlflow.tuner.generated_engine.unavailable", lambda: None)
    with pytest.raises(UsageError, match="one thread"):
        tune(model(), tmp_path / "out", by="random", generate=True, **more)
    assert not (tmp_path / "out").exists()


@needs_tvm
@pytest.mark.parametrize("told", ["avx2", "avx512"])
def test_code_uses_only_what_a_virtual_machine_shows(told: str) -> None:
    """LLVM goes by the processor's name, and has it use what is hidden: programs ended at the first instruction."""
    script = (
        f"from rlflow.tuner import tvm_sites as sites; sites.instruction_set = lambda: {told!r}\n"
        "sites.codegen.llvm_get_system_cpu = lambda: 'znver4'\n"
        "wide = lambda target: sites.codegen.target_has_features('avx512f', target)\n"
        "name, target = sites.isa_here()\n"
        "print(name, wide(target), wide(sites.target_here()))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.split() == [told, *[str(told == "avx512")] * 2]
