"""Split, written, run: identical outputs, and every way in which workers fail ends in a sentence."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from split_models import branches, dense, mlp, with_body, with_sequence

from rlflow.cli import main
from rlflow.errors import ModelError, OutputError, RlflowError, UsageError, VerificationFailed
from rlflow.processes import python_command
from rlflow.splitting import Coordinator, Manifest, serve_parts, split
from rlflow.splitting.coordinator import WorkerLost, stops_of
from rlflow.splitting.frames import Connection, Frame, greet


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in three parts; the model is beside."""
    folder = tmp_path_factory.mktemp("split")
    (folder / "whole.onnx").write_bytes(mlp(layers=6).SerializeToString())
    found = split(folder / "whole.onnx", folder / "parts", 3, cost="analytic", dims={"N": 2})
    assert found.verification is not None
    assert found.verification.passed
    return found.folder


def invoke(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, [str(one) for one in arguments])
    return done.exit_code, done.stdout, done.stderr


# -- splitting


@pytest.mark.parametrize(("make", "more"), [(branches, ["--dim", "N=2"]), (with_body, [])])
def test_odd_models_are_split_and_compute_the_same(make, more: list[str], tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(make().SerializeToString())
    code, out, err = invoke("split", path, "-n", 2, "-o", tmp_path / "parts", "--cost", "analytic", *more)
    assert code == 0, err
    assert "to the last bit" in out
    assert sorted(one.name for one in (tmp_path / "parts").iterdir()) == ["manifest.json", "part-0.onnx", "part-1.onnx"]
    code, out, err = invoke("run", tmp_path / "parts", "--requests", 6, "--against", path)
    assert code == 0, err
    assert "to the last bit" in out


@pytest.mark.parametrize(("dim", "expected"), [("M=3", 2), ("N=3", 0)])
def test_requests_have_the_dimensions_of_the_model(dim: str, expected: int, parts: Path) -> None:
    code, _, err = invoke("run", parts, "--dim", dim)
    assert (code, "no open dimension 'M'. There are: N." in err) == (expected, expected == 2), err


def test_the_whole_may_be_a_model_of_the_zoo(tmp_path: Path) -> None:
    name = "nasrnn?hidden=8&steps=1"
    code, _, err = invoke("split", name, "-o", tmp_path / "parts", "--cost", "analytic", "--no-verify")
    assert code == 0, err
    code, out, err = invoke("run", tmp_path / "parts", "--against", name)
    assert code == 0, err
    assert "to the last bit" in out


def test_by_operations_and_bytes_nothing_is_profiled_for_the_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlflow.splitting import cutting

    asked = []
    monkeypatch.setattr(cutting, "profiled_costs", lambda *given: asked.append("measured"))
    for cost in ("analytic", "measured"):
        split(mlp(), tmp_path / cost, 2, cost=cost, dims={"N": 2})
    assert asked == ["measured"]


def test_a_cut_that_moves_roundings_is_not_taken_where_another_is_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlflow.splitting.cutting import _Cutting

    asked: list[int] = []

    def same(self: _Cutting, folder: Path, manifest: Manifest, whole: object) -> bool:
        nodes = len(onnx.load(folder / "part-0.onnx").graph.node)
        asked.append(nodes)
        return nodes != asked[0]  # where the first cut is depends on how long the parts took

    monkeypatch.setattr(_Cutting, "_same", same)
    monkeypatch.setattr("rlflow.splitting.cutting._NEARLY", 2.0)
    found = split(mlp(layers=7), tmp_path / "parts", 2, cost="analytic", dims={"N": 2})
    assert asked[0] == asked[1]
    assert found.nodes[0] == asked[-1] != asked[0]
    assert found.nodes[0] == len(onnx.load(tmp_path / "parts" / "part-0.onnx").graph.node)


def test_images_are_handed_over_in_the_layout_of_the_whole(tmp_path: Path) -> None:
    """Where the runtime has a blocked layout, a cut in the first half moves roundings without the pools."""
    found = split(dense(), tmp_path / "parts", 2, cost="analytic")
    assert found.verification is not None
    assert found.notes == ()
    assert all(check.run is None for check in found.verification.outputs)
    assert 0 < found.nodes[0] < 18


def test_that_roundings_move_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlflow.splitting.cutting._Cutting._same", lambda *_: False)
    path = tmp_path / "m.onnx"
    path.write_bytes(mlp(layers=3).SerializeToString())
    code, out, err = invoke("split", path, "-n", 2, "-o", tmp_path / "parts", "--cost", "analytic", "--dim", "N=2")
    assert code == 0, err
    assert "note: ONNX Runtime fuses or lays out the parts otherwise than the whole" in out
    taken = [onnx.load(tmp_path / "parts" / f"part-{k}.onnx").graph.node for k in range(2)]
    assert not any(node.op_type == "AveragePool" for nodes in taken for node in nodes)


def test_measured_parts_are_balanced(tmp_path: Path) -> None:
    found = split(mlp(layers=8, width=256), tmp_path / "parts", 2, dims={"N": 64})
    assert max(found.times) / sum(found.times) < 0.75
    assert sum(part.share for part in found.manifest.parts) == pytest.approx(1.0)


def test_memory_limits_move_the_cut_or_refuse(tmp_path: Path) -> None:
    model = mlp(layers=6, width=32)
    each = 4 * 32 * 32
    found = split(model, tmp_path / "a", 3, cost="analytic", memory=3 * each, check=False)
    assert all(part.weight_bytes <= 3 * each for part in found.manifest.parts)
    with pytest.raises(UsageError, match="the whole needs"):
        split(model, tmp_path / "b", 2, cost="analytic", memory=each, check=False)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("make", "parts", "error", "part"),
    [
        (mlp, 40, UsageError, "has 12 nodes"),
        (with_sequence, 3, UsageError, "1 places"),
        (lambda: b"no model", 2, ModelError, "not a serialised"),
    ],
)
def test_what_cannot_be_split_is_said(make, parts: int, error: type[RlflowError], part: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=part):
        split(make(), tmp_path / "parts", parts, cost="analytic", check=False)
    assert list(tmp_path.iterdir()) == []


def test_parts_that_differ_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlflow.frontends.dissection import Dissection

    usual = Dissection.write

    def spoilt(self, piece, path):
        for node in piece.model.graph.node:
            if node.op_type == "Relu":
                node.op_type = "Neg"
        return usual(self, piece, path)

    monkeypatch.setattr(Dissection, "write", spoilt)
    with pytest.raises(VerificationFailed, match="nothing was written"):
        split(mlp(), tmp_path / "parts", 2, cost="analytic", dims={"N": 2})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_free_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "x").write_text("x")
    with pytest.raises(OutputError, match="not empty"):
        split(mlp(), tmp_path / "there", 2, cost="analytic", check=False)
    with pytest.raises(OutputError, match="no directory"):
        split(mlp(), tmp_path / "a" / "b", 2, cost="analytic", check=False)


def test_large_external_weights_stay_external(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlflow.frontends import storage

    onnx.save_model(mlp(width=64), tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    monkeypatch.setattr(storage, "_LARGE", 1000)
    found = split(tmp_path / "m.onnx", tmp_path / "parts", 2, cost="analytic", dims={"N": 2})
    assert all(list(part.data) == [f"{part.file}.data"] for part in found.manifest.parts)
    _, beside = serve_parts(tmp_path / "parts", requests=2, against=tmp_path / "m.onnx")
    assert beside is not None
    assert beside.identical


# -- running


def test_a_pipeline_gives_the_answers_in_order(parts: Path) -> None:
    manifest = Manifest.read(parts)
    feeds = [{"x": np.full((2, 16), number, np.float32)} for number in range(20)]
    with Coordinator.here(stops_of(manifest, str(parts)), ["y"]) as workers:
        several = workers.serve(feeds).outputs
        alone = [workers.serve([one]).outputs[0] for one in feeds[:5]]
    assert all(np.array_equal(one["y"], other["y"]) for one, other in zip(alone, several, strict=False))
    assert not np.array_equal(several[1]["y"], several[2]["y"])


def test_given_inputs_and_written_outputs(parts: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones((5, 16), np.float32))
    code, out, err = invoke(
        "run", parts, "--input-data", tmp_path / "in.npz", "-o", tmp_path / "out.npz", "--json", "--against",
        parts.parent / "whole.onnx",
    )  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["identical"] is True
    assert np.load(tmp_path / "out.npz")["y"].shape == (5, 16)


def test_a_killed_worker_is_a_sentence_and_not_a_hang(parts: Path) -> None:
    manifest = Manifest.read(parts)
    feeds = ({"x": np.zeros((2, 16), np.float32)} for _ in range(100_000))
    with Coordinator.here(stops_of(manifest, str(parts)), ["y"]) as workers:
        child = workers._stations[1]._child
        assert child is not None
        began = time.monotonic()
        threading.Timer(0.3, os.kill, (child.pid, signal.SIGKILL)).start()
        with pytest.raises(WorkerLost) as caught:
            for _ in workers.stream(feeds):
                pass
    assert time.monotonic() - began < 10
    title = f"part 1 of 3 ({manifest.parts[1].sha256[:12]})"
    assert f"{title} (process {child.pid}) died while running" in str(caught.value)
    assert "killed by SIGKILL" in str(caught.value)


def test_a_stopped_worker_is_given_up(parts: Path) -> None:
    manifest = Manifest.read(parts)
    with Coordinator.here(stops_of(manifest, str(parts)), ["y"], seconds=20.0) as workers:
        station = workers._stations[2]
        assert station._child is not None
        station.seconds = 0.5
        os.kill(station._child.pid, signal.SIGSTOP)
        with pytest.raises(WorkerLost, match=r"did not answer within 0\.5 s while running request 0"):
            workers.serve([{"x": np.zeros((2, 16), np.float32)}])
        os.kill(station._child.pid, signal.SIGCONT)


def test_a_request_that_the_model_refuses_is_a_sentence(parts: Path) -> None:
    manifest = Manifest.read(parts)
    with (
        Coordinator.here(stops_of(manifest, str(parts)), ["y"]) as workers,
        pytest.raises(WorkerLost, match=r"part 0 .* refused request 0: .*ONNX Runtime failed to run"),
    ):
        workers.serve([{"x": np.zeros((2, 17), np.float32)}])


def test_workers_end_with_their_coordinator(parts: Path) -> None:
    """Even where it is killed, which leaves nobody to end them."""
    code = (
        "import os, sys; from rlflow.splitting.coordinator import *; from rlflow.splitting import Manifest; "
        f"m = Manifest.read({str(parts)!r}); c = Coordinator.here(stops_of(m, {str(parts)!r}), ['y']); "
        "print(*[s._child.pid for s in c._stations], flush=True); os.kill(os.getpid(), 9)"
    )
    command = python_command("os", "getpid")[:1]
    done = subprocess.run([*command, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    pids = [int(one) for one in done.stdout.split()]
    assert len(pids) == 3, done.stderr
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


# -- hosts


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("a secret of more than sixteen characters\n")
    return path


def started(parts: Path, number: int, token: Path) -> tuple[subprocess.Popen[str], str]:
    """A worker on a "host", and where it waits."""
    arguments = ["run", str(parts), "--worker", str(number), "--listen", "127.0.0.1:0", "--token-file", str(token)]
    command = python_command("rlflow.cli", "main", arguments)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    line = child.stdout.readline()
    return child, line.strip().rstrip(".").rpartition(" ")[2]


@pytest.fixture
def hosts(parts: Path, token: Path) -> Iterator[list[str]]:
    found = [started(parts, number, token) for number in range(3)]
    yield [place for _, place in found]
    for child, _ in found:
        child.kill()
        child.communicate()


def test_hosts_serve_one_coordinator_after_the_other(
    parts: Path, token: Path, hosts: list[str], tmp_path: Path
) -> None:
    whole = parts.parent / "whole.onnx"
    for _ in range(2):
        code, out, err = invoke(
            "run", parts, "--connect", ",".join(hosts), "--token-file", token, "--requests", 5, "--against", whole
        )
        assert code == 0, err
        assert "to the last bit" in out
    other = tmp_path / "other"
    other.write_text("another secret of sixteen characters")
    code, _, err = invoke("run", parts, "--connect", ",".join(hosts), "--token-file", other)
    assert code == 1
    assert "the same token file" in err or "closed the connection" in err
    code, _, err = invoke("run", parts, "--connect", ",".join(hosts[::-1]), "--token-file", token)
    assert code == 1
    assert "in the order of their parts" in err


def test_a_host_survives_strangers(parts: Path, token: Path) -> None:
    child, place = started(parts, 0, token)
    host, _, port = place.rpartition(":")
    try:
        for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", b"RLF1" + b"\xff" * 100):
            with socket.create_connection((host, int(port)), timeout=5) as link:
                link.sendall(garbage)
        link = Connection(socket.create_connection((host, int(port)), timeout=5), "The worker")
        greet(link, token.read_bytes().strip(), 10.0, as_worker=False)
        assert link.receive(10.0).kind == "ready"
        link.send(Frame("stop", {"id": 0}))
        assert "only runs" in link.receive(10.0).values["why"]
        link.send(Frame("run", {"id": 1}, {"x": np.zeros((1, 16), np.float32)}))
        assert link.receive(10.0).kind == "done"
        link.close()
        assert child.poll() is None
    finally:
        child.kill()
        child.communicate()


# -- mistakes


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda found: found.update(format=9), "its format is '9', expected 1"),
        (lambda found: found["parts"][0].update(file="../x.onnx"), "not the plain name of a file"),
        (lambda found: found["parts"][0].update(sha256="0"), "not a SHA-256"),
        (lambda found: found.update(parts=found["parts"][::-1]), "which no part before it gives"),
        (lambda found: found["parts"].pop(), "no part gives the output 'y'"),
        (lambda found: found.pop("ranges"), "it has no 'ranges'"),
        (lambda found: found["parts"][1].update(sha256="0" * 64), "is not the one that the manifest means"),
    ],
)
def test_a_manifest_that_was_changed_is_refused(change, part: str, parts: Path, tmp_path: Path) -> None:
    for one in parts.iterdir():
        (tmp_path / one.name).write_bytes(one.read_bytes())
    found = json.loads((parts / "manifest.json").read_text())
    change(found)
    (tmp_path / "manifest.json").write_text(json.dumps(found))
    code, _, err = invoke("run", tmp_path)
    assert code == 1
    assert part in err


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["--worker", "0"], 2, "needs --listen"),
        (["--worker", "7", "--listen", "127.0.0.1:0", "--token-file", "TOKEN"], 2, "There is no part 7"),
        (["--connect", "127.0.0.1:1"], 2, "need a token"),
        (["--connect", "127.0.0.1:1", "--token-file", "TOKEN"], 2, "3 parts, and 1 hosts"),
        (["--connect", "h:1,h:x,h:2", "--token-file", "TOKEN"], 2, "expected HOST:PORT"),
        (["--connect", "127.0.0.1:1,127.0.0.1:1,127.0.0.1:1", "--token-file", "TOKEN"], 1, "cannot be reached"),
        (["--timeout", "0"], 2, "above zero"),
        (["--input-data", "gone.npz"], 2, "does not exist"),
    ],
)
def test_mistakes_are_sentences(arguments: list[str], code: int, part: str, parts: Path, token: Path) -> None:
    given = [str(token) if one == "TOKEN" else one for one in arguments]
    found, _, err = invoke("run", parts, *given)
    assert found == code, err
    assert part in err
    assert err.count("\n") == 1


def test_a_folder_that_is_no_split_model(tmp_path: Path) -> None:
    assert "is no folder of a split model" in invoke("run", tmp_path / "gone")[2]
    assert "manifest.json" in invoke("run", tmp_path)[2]
