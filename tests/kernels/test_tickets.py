"""Tickets, by which a program without Python gets the kernels; and the plain model, with one line in the runtime's log,
wherever a ticket does not hold.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import blocked_models as models
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from test_provider import feeds, from_kernels, needs_provider, plain, same, written
from test_sessions import planned

import rlflow.kernels
from rlflow.errors import ModelError, OutputError
from rlflow.kernels import provider, tickets

pytestmark = needs_provider


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFLOW_CACHE", os.fspath(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "model.onnx", planned())


def by_ticket_beside(path: Path, raw: bytes | None = None) -> ort.InferenceSession:
    """A session of a program that knows nothing but the provider."""
    options = ort.SessionOptions()
    options.add_provider_for_devices(provider.devices(), {})
    return ort.InferenceSession(path if raw is None else raw, options)


def test_a_ticket_beside_the_model_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = from_kernels(path, feeds())
    assert rlflow.kernels.prepare(path, beside=True) == rlflow.kernels.prepare(path)
    assert sorted(one.name for one in path.parent.iterdir() if one.is_file()) == ["model.onnx", "model.onnx.kernels"]
    assert same(by_ticket_beside(path).run(None, feeds()), expected)
    monkeypatch.chdir(path.parent)
    assert same(by_ticket_beside(Path(path.name)).run(None, feeds()), expected)


def test_a_time_of_whole_seconds_is_the_same_time(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Images of containers keep no fractions of seconds."""
    expected = from_kernels(path, feeds())
    rlflow.kernels.prepare(path, beside=True)
    seconds = path.stat().st_mtime_ns // 10**9 * 10**9
    os.utime(path, ns=(seconds, seconds))
    assert same(by_ticket_beside(path).run(None, feeds()), expected)
    os.utime(path, ns=(seconds + 1, seconds + 1))
    by_ticket_beside(path)
    assert "has changed since" in capfd.readouterr().err


def test_a_model_behind_a_link_with_weights_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "model.onnx", tmp_path / "model.onnx"
    model = onnx.ModelProto.FromString(planned())
    onnx.save(model, real, save_as_external_data=True, location="the weights", size_threshold=0)
    rlflow.kernels.prepare(real, beside=True)
    assert same(by_ticket_beside(real).run(None, feeds()), from_kernels(real, feeds()))
    link.symlink_to(real)
    (tmp_path / "the weights").symlink_to(
        tmp_path / "real" / "the weights"
    )  # ONNX Runtime itself looks beside the link
    rlflow.kernels.prepare(link, beside=True)
    assert same(by_ticket_beside(link).run(None, feeds()), from_kernels(real, feeds()))
    assert "rlflow" not in capfd.readouterr().err


def test_a_ticket_that_cannot_be_written_is_an_error(path: Path) -> None:
    Path(f"{path}.kernels").mkdir()
    with pytest.raises(OutputError):
        rlflow.kernels.prepare(path, beside=True)


def edited(old: str, new: str) -> Callable[[Path, Path], None]:
    def edit(path: Path, prepared: Path) -> None:
        ticket = Path(f"{path}.kernels")
        text = ticket.read_text()
        assert old in text
        ticket.write_text(text.replace(old, new))

    return edit


def replaced(content: bytes) -> Callable[[Path, Path], None]:
    return lambda path, prepared: Path(f"{path}.kernels").write_bytes(content)  # type: ignore[return-value]


def touch(path: Path, prepared: Path) -> None:
    os.utime(path, ns=(1, 1))


def cut(path: Path, prepared: Path) -> None:
    prepared.write_bytes(prepared.read_bytes()[:1000])


def scramble(path: Path, prepared: Path) -> None:
    prepared.write_bytes(bytes(reversed(prepared.read_bytes())))


def cut_weights(path: Path, prepared: Path) -> None:
    weights = Path(f"{prepared}.data")
    weights.write_bytes(weights.read_bytes()[:1000])


def take_of_another(path: Path, prepared: Path) -> None:
    """The prepared file of a model with the same inputs, outputs and sizes."""
    model = onnx.ModelProto.FromString(planned())
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(tensor), tensor.name))
    other = rlflow.kernels.prepare(written(path.with_name("other.onnx"), model.SerializeToString()))
    edited(os.fspath(prepared), other)(path, prepared)
    edited(f"prepared {prepared.stat().st_size}", f"prepared {os.stat(other).st_size}")(path, prepared)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path, prepared: Path(f"{path}.kernels").unlink(), "there is no ticket"),
        (replaced(b""), "of another version or damaged"),
        (replaced(b"\xff\x00" * 1000), "of another version or damaged"),
        (replaced(b"x" * (2 << 20)), "too large"),
        (edited("ticket 4", "ticket 3"), "of another version or damaged"),
        (edited("key ", "code "), "a line that this version does not know"),
        (edited("key ", "key 0"), "was made for another model"),
        (edited("runtime 1", "runtime 0"), "prepared for ONNX Runtime 0"),
        (edited("processor ", "processor z"), "prepared for a processor with z"),
        (edited("runtime", "key"), "damaged"),
        (touch, "has changed since"),
        (lambda path, prepared: prepared.unlink(), "is not what was written"),
        (cut, "is not what was written"),
        (scramble, "Protobuf parsing failed|INVALID_PROTOBUF|invalid"),
        (cut_weights, "external|out of bounds|file"),
        (take_of_another, "was made for another model"),
    ],
)
def test_the_plain_model_runs_where_the_ticket_does_not_hold(
    spoil: Callable[[Path, Path], None], reason: str, path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prepared = Path(rlflow.kernels.prepare(path, beside=True))
    spoil(path, prepared)
    session = by_ticket_beside(path)
    lines = [line for line in capfd.readouterr().err.splitlines() if "rlflow.kernels" in line]
    assert len(lines) == 1
    assert "the model runs without them" in lines[0]
    assert re.search(reason, lines[0])
    assert same(session.run(None, feeds()), plain(path).run(None, feeds()))


def test_weights_that_have_changed_since(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.ModelProto.FromString(planned()), path, save_as_external_data=True, location="w", size_threshold=0)
    rlflow.kernels.prepare(path, beside=True)
    weights = tmp_path / "w"
    weights.write_bytes(bytes(reversed(weights.read_bytes())))
    session = by_ticket_beside(path)
    assert "w has changed since" in capfd.readouterr().err
    np.testing.assert_array_equal(session.run(None, feeds())[0], plain(path).run(None, feeds())[0])


def test_a_model_that_is_not_opened_by_its_path(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rlflow.kernels.prepare(path, beside=True)
    session = by_ticket_beside(path, path.read_bytes())
    assert "not opened by its path" in capfd.readouterr().err
    assert same(session.run(None, feeds()), plain(path).run(None, feeds()))


def test_a_strange_model_with_the_options_of_another(
    path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ort.SessionOptions()
    assert rlflow.kernels.add_provider(options, path)
    other = written(tmp_path / "other.onnx", models.small_network(dynamic=True))
    session = ort.InferenceSession(other, options)
    assert "has changed since" in capfd.readouterr().err
    assert same(session.run(None, feeds()), plain(other).run(None, feeds()))


def test_a_name_with_a_line_break_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "model.onnx", planned())
    prepared = rlflow.kernels.prepare(path)
    model = onnx.ModelProto.FromString(planned())
    onnx.save(model, path, save_as_external_data=True, location="a\nkey b", size_threshold=0)
    with pytest.raises(ModelError, match="line breaks"):
        tickets.write(os.fspath(tmp_path / "t"), "4", os.fspath(path), prepared)
