"""Other tools beside rlflow: what one did wrong is a sentence, what it did right is timed, the table shows both."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "reproduce" / "exports"
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "common")]
spec = importlib.util.spec_from_file_location("exports_peers", FOLDER / "peers.py")
assert spec is not None and spec.loader is not None
peers = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = peers
spec.loader.exec_module(peers)

MODEL = '<ir_version: 10, opset_import: ["": 20]>\nm (float[4,8] x) => (float[4,8] y) {\n%s\n}'


def model(path: Path, body: str) -> Path:
    onnx.save(onnx.parser.parse_model(MODEL % body), path)
    return path


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("open(sys.argv[1], 'w').close()", None),
        ("pass", "wrote no model"),
        ("raise ValueError('no such operator')", "ValueError: no such operator"),
        ("sys.exit(3)", "ended with status 3"),
        ("os.kill(os.getpid(), 6)", "was ended by signal 6"),
    ],
)
def test_what_a_tool_did_wrong_is_a_sentence(code: str, said: str | None, tmp_path: Path) -> None:
    target = tmp_path / "written.onnx"
    assert peers.attempt([sys.executable, "-c", f"import os, sys\n{code}", str(target)], target) == said


@pytest.mark.parametrize(("body", "same"), [("y = Relu(Relu(x))", True), ("y = Neg(x)", False)])
def test_what_a_tool_wrote_is_compared_with_the_original(body: str, same: bool, tmp_path: Path) -> None:
    source, other = model(tmp_path / "a.onnx", "t = Relu(x)\ny = Relu(t)"), tmp_path / "b.onnx"
    model(other, body if same is False else "y = Relu(x)")
    assert (peers.difference(source, other) is None) == same
    other.write_bytes(b"no model")
    assert peers.difference(source, other)


def test_fake_tools_become_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = model(tmp_path / "resnet18-0.onnx", "t = Relu(x)\ny = Relu(t)")
    monkeypatch.setattr(peers, "model_file", lambda name, seed: source)
    monkeypatch.setattr(peers, "kept_file", lambda name, seed: tmp_path / "none.onnx")
    monkeypatch.setattr(peers, "WRITERS", {"onnxsim": None, "onnxslim": None})
    monkeypatch.setattr(peers, "attempt", lambda command, target: fake(command[3], target))
    options = argparse.Namespace(seed=0, blocks=2, seconds=0.05, threads=1, tools=peers.TOOLS)
    rows = {row["tool"]: row for row in peers.measure("resnet18", options, True)}
    assert len(rows["onnxsim"]["blocks"]) == len(rows["itself"]["blocks"]) == 2
    assert rows["onnxslim"]["error"] == "gave up"
    assert rows["rlflow"]["gain"] == 1.0
    assert ("OpenVINO" in rows) == (importlib.util.find_spec("openvino") is not None)
    assert not any("threads" in one for one in rows.values())
    options = argparse.Namespace(seed=0, blocks=1, seconds=0.05, threads=2, tools=["onnxsim"])
    assert [(one["tool"], one["threads"]) for one in peers.measure("resnet18", options, False)] == [
        ("itself", 2),
        ("onnxsim", 2),
    ]


def fake(tool: str, target: Path) -> str | None:
    if tool == "onnxslim":
        return "gave up"
    model(target, "y = Relu(x)")
    return None


def row(name: str, tool: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "tool": tool, **fields}


def test_the_table_has_all_tools_and_counts_a_failure_as_one() -> None:
    rows = [
        row("resnet18", "itself", gain=1.0),
        row("resnet18", "onnxsim", gain=1.21),
        row("resnet18", "onnxslim", error="gave up"),
        row("swin_t", "itself", gain=1.0),
        row("swin_t", "onnxsim", gain=1.44),
        row("swin_t", "onnxslim", gain=1.21),
    ]
    text = "\n".join(peers.table(rows))
    assert "| Model | itself | onnxsim | onnxslim |" in text
    assert "| resnet18 | 1.00 | 1.21 | failed |" in text
    assert "| 1.000 (2) | 1.320 (2) | 1.100 (2) |" in text
    assert "* resnet18, onnxslim: gave up" in text


def test_only_kinds_that_the_optimiser_of_transformers_knows_are_given_to_it() -> None:
    assert peers.fits("ORT transformers", "bert4_pooled@older")
    assert not peers.fits("ORT transformers", "resnet18")
    assert peers.fits("onnxsim", "resnet18")
    assert set(peers.CONFIG["transformers"]) <= set(peers.names())
