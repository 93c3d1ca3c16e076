"""The fuzzer sees what it is there for, and its targets are run."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limits are set as Linux has them")
if not pytestmark.args[0]:
    sys.path.insert(0, str(Path(__file__).parent))
    import driver
    from targets import TARGETS, Target

    from rlflow.errors import ModelError
    from rlflow.frontends import canonical

#: The same ones in every run; `make fuzz` goes on from there.
INPUTS = 100


def crash(data: bytes, _: object) -> None:
    if b"!" in data:
        faulthandler.disable()  # which would print every thread's stack
        os.abort()


def hang(data: bytes, _: object) -> None:
    time.sleep(30 if b"!" in data else 0)


def swallow(data: bytes, _: object) -> None:
    bytearray((4 << 30) if b"!" in data else 1)


def stumble(data: bytes, _: object) -> None:
    raise KeyError("x") if b"!" in data else ModelError("refused")


@pytest.mark.parametrize(
    ("read", "words"),
    [(crash, "died (SIGABRT)"), (hang, "no answer"), (swallow, "MemoryError"), (stumble, "KeyError")],
)
def test_what_is_wrong_is_found(read: object, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "INPUT_SECONDS", 0.1)
    target = Target("planted", lambda: [b"good", b"bad!"], read)  # type: ignore[arg-type]
    found: list[tuple[str, bytes]] = []
    counts = driver.fuzz(target, 1.0, 0, None, lambda outcome, data: found.append((outcome, data)))
    assert words in found[0][0]
    assert found[0][1] == b"bad!"
    assert len(found) == 1, "one for each place"
    assert counts["read"] + counts["refused"] > 0


def misread(_: object) -> object:
    raise KeyError("a mistake of the reader")


def of_one(node: onnx.NodeProto, opset: int = 17, **constants: np.ndarray) -> bytes:
    """A model of one node that reads ``x``."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name=node.output[0])], held)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


NODES = {
    "Relu": (of_one(helper.make_node("Relu", ["x"], ["y"])), True),
    "Softmax": (of_one(helper.make_node("Softmax", ["x"], ["y"], axis=1)), True),
    "Pad by nothing": (of_one(helper.make_node("Pad", ["x"], ["y"]), opset=10), False),
    "TopK of no number": (of_one(helper.make_node("TopK", ["x"], ["y", "places"]), opset=9), False),
    "Dropout by a list": (of_one(helper.make_node("Dropout", ["x", "", "no"], ["y"]), no=np.zeros(0, bool)), False),
    "Resize by a text": (of_one(helper.make_node("Resize", ["x", "", "no"], ["y"]), no=np.array(["a"], object)), False),
}


@pytest.mark.parametrize("name", NODES)
def test_a_sound_node_that_the_importer_does_not_understand_is_a_finding(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not sound is none, whoever reads it."""
    data, sound = NODES[name]
    assert driver._outcome(TARGETS["models"], data, None) == "read"
    monkeypatch.setattr(canonical, "read", misread)
    outcome = driver._outcome(TARGETS["models"], data, None)
    assert "a mistake of the reader" in outcome if sound else outcome == "read"


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_targets_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = TARGETS[name]
    reason = target.missing()
    if reason is not None:
        pytest.skip(reason)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found: list[str] = []
    counts = driver.fuzz(
        target, 20.0, 1, None, lambda outcome, data: found.append(f"{outcome}: {data[:200]!r}"), most=INPUTS
    )
    assert not found
    assert counts["read"] + counts["refused"] > 0
