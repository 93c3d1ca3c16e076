"""A model with a file of weights is replaced as one: killed anywhere, a run leaves the old pair or the new."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from model_tools import model, value
from onnx import helper, numpy_helper

from rlflow.files import check_output
from rlflow.frontends import load_model, save_model, storage

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the process that is killed is forked")
#: What Python announces before the system calls that change files.
CHANGES = {"os.rename", "os.remove", "os.link", "os.symlink", "os.chmod", "os.truncate", "os.mkdir", "os.rmdir"}
OLD, NEW = 1.0, 2.0


@pytest.fixture(autouse=True)
def large_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_LARGE", 1)


def pair(weight: float) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Mul", ["h", "s"], ["y"])]
    tensors = {"w": np.full((32, 32), weight, np.float32), "s": np.float32(weight)}
    return model(nodes, [value("x", [2, 32])], [value("y", [2, 32])], tensors)


def source(folder: Path, weight: float) -> Path:
    path = folder / "source" / f"{weight}.onnx"
    path.parent.mkdir(exist_ok=True)
    onnx.save(pair(weight), path, save_as_external_data=True, location=f"{weight}.bin", size_threshold=0)
    return path


def save(path: Path, target: Path) -> None:
    imported = load_model(path)
    save_model(imported, imported.graph, str(target))


def weights_of(target: Path) -> set[float]:
    """The values in the large weight, which is in the data file, and the small one, which is in the model."""
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(target).graph.initializer}
    assert found["w"].shape == (32, 32)
    return {*np.unique(found["w"]).tolist(), float(found["s"])}


def killed(action: Callable[[], Any], prepare: Callable[[], Any]) -> bool:
    """Whether a process that runs ``action`` was ended before it was done."""
    child = os.fork()
    if child == 0:
        try:
            prepare()
            action()
        except BaseException:  # noqa: BLE001 - nothing may get back into pytest
            os._exit(3)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def kill_at(count: int) -> Callable[[], None]:
    left = [count]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and bool((arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if writes or event in CHANGES:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return lambda: sys.addaudithook(hook)


@pytest.mark.parametrize("start", ["with data", "in one file", "new"])
def test_killed_before_every_change_of_a_file(tmp_path: Path, start: str) -> None:
    old, new = source(tmp_path, OLD), source(tmp_path, NEW)
    for count in range(1, 100):
        folder = tmp_path / str(count)
        folder.mkdir()
        target = folder / "o.onnx"
        if start == "with data":
            save(old, target)
        elif start == "in one file":
            onnx.save(pair(OLD), target)
        ended = killed(lambda target=target: save(new, target), kill_at(count))
        there = weights_of(target) if target.exists() else None
        assert there in ([{OLD}, {NEW}] if start != "new" else [None, {NEW}]), f"killed before change {count}"
        save(new, target)
        assert weights_of(target) == {NEW}
        if not ended:
            assert there == {NEW}
            assert len([path for path in folder.iterdir() if ".data" in path.name]) == 1
            break
    assert 6 < count < 99, "so many changes of files were seen"


@pytest.mark.parametrize("size", [0, 1, 100, 1000, 4000, 4096])
def test_killed_while_writing(tmp_path: Path, size: int) -> None:
    old, new, target = source(tmp_path, OLD), source(tmp_path, NEW), tmp_path / "o.onnx"
    save(old, target)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    ended = killed(lambda: save(new, target), limit)
    assert ended == (size < 4096)
    assert weights_of(target) == ({OLD} if ended else {NEW})


def test_the_next_run_removes_what_was_left(tmp_path: Path) -> None:
    target, new = tmp_path / "o.onnx", source(tmp_path, NEW)
    assert killed(lambda: save(new, target), kill_at(3))
    left = [path for path in tmp_path.iterdir() if path.name.startswith(".o.onnx.data.")]
    assert left
    others = [tmp_path / name for name in (".o.onnx.keep", ".other.onnx.abcdefgh", ".o.onnx.data.mine", "o.onnx.data")]
    for path in (*left, *others):
        path.touch()
        os.utime(path, (0, 0))
    check_output(target, None)
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in others)


def test_what_another_run_is_writing_stays(tmp_path: Path) -> None:
    from rlflow.files import replacing

    with replacing(tmp_path / "o.onnx") as stream:
        os.utime(stream.name, (0, 0))
        check_output(tmp_path / "o.onnx", None)
        assert os.path.exists(stream.name)
    assert (tmp_path / "o.onnx").exists()


def test_folders_of_killed_runs_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlflow.files import ScratchFolder, _sweep_scratch

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ScratchFolder() as held:
        assert killed(lambda: [ScratchFolder("rlflow-models-"), os._exit(1)], lambda: None)
        names = {path.name for path in tmp_path.iterdir()} - {os.path.basename(held)}
        assert len(names) == 1, "the folder of the process that ended without tidying up"
        (tmp_path / "rlflow-a-file").touch()
        (tmp_path / "another").mkdir()
        (tmp_path / "rlflow-link").symlink_to(tmp_path / "another")
        for path in tmp_path.iterdir():
            os.utime(path, (0, 0), follow_symlinks=False)
        _sweep_scratch()
        there = {path.name for path in tmp_path.iterdir()}
        assert there == {os.path.basename(held), "rlflow-a-file", "another", "rlflow-link"}
