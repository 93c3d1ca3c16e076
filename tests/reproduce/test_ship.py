"""The command that trains what ships: what it calls, what it keeps, and what it says of the files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "reproduce")]

import ship  # noqa: E402 - from reproduce

from rlflow.nn.checkpoint import read_arrays, shipped, write_arrays  # noqa: E402


def test_every_file_that_ships_has_its_command() -> None:
    assert {path.stem for path in shipped("levin").parent.glob("*.npz")} == set(ship.AGENTS)


@pytest.mark.parametrize("agent", list(ship.AGENTS))
def test_its_kind_is_that_of_the_file_and_the_card_has_no_seconds(agent: str) -> None:
    meta, _ = read_arrays(shipped(agent), *ship.AGENTS[agent][1:])
    assert "seconds" not in json.dumps(meta["card"])


@pytest.mark.parametrize("agent", ["levin", "xrlflow"])
def test_a_training_computes_as_on_every_processor(agent: str) -> None:
    """Sums and exponentials of what AVX-512 has are others; without it NumPy and torch say what they use."""
    told = (
        "import numpy.lib.introspect as i, torch; d = i.opt_func_info(func_name='^exp$', signature='float64');"
        "print(d['exp']['dd']['current'], torch.backends.cpu.get_cpu_capability(), torch.get_num_threads())"
    )
    pytest.importorskip("torch", reason="torch is not installed: pip install 'rlflow[rl]'")
    words = [sys.executable, "-c", told]
    env = os.environ | ship.environment(agent)
    said = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
    assert "AVX512" not in said.upper() and "X86_V4" not in said
    assert said.split()[-2] in ("AVX2", "DEFAULT") and said.split()[-1] == "1"


def test_a_training_is_resumed_where_there_is_something_to_go_on_from(tmp_path: Path) -> None:
    out = tmp_path / "go.npz"
    assert ship.command("go", out)[1:] == ["-m", "rlflow", "train", "go", "--held-out", "gnmt", "--out", str(out)]
    out.with_name("go.npz.last").touch()
    assert "--resume" in ship.command("go", out)


def test_cards_lose_their_seconds_alone() -> None:
    card = {"seconds": 3.0, "start": {"seconds": 2.0, "steps": 5}, "models": ["a"], "score": 0.5}
    assert ship.without_seconds(card) == {"start": {"steps": 5}, "models": ["a"], "score": 0.5}


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Instead of a training: the file that ships, by another clock. What was called."""
    called: list[list[str]] = []

    def run(words: list[str], *, env: dict[str, str], **_: Any) -> None:
        assert env.items() >= ship.environment(Path(words[-1]).stem).items() > {}.items()
        assert env["PATH"] == os.environ["PATH"]
        called.append(words)
        out = Path(words[-1])
        meta, arrays = read_arrays(shipped(out.stem), *ship.AGENTS[out.stem][1:])
        write_arrays(out, meta | {"card": meta["card"] | {"seconds": 12.5}}, arrays)

    monkeypatch.setattr(ship.subprocess, "run", run)
    return called


def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["ship.py", *words])
    status = ship.main()
    out, err = capsys.readouterr()
    return status, out, err


def test_the_same_weights_are_the_same_file_whatever_the_clock_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, copies: list[list[str]]
) -> None:
    status, out, _ = said(monkeypatch, capsys, "--out", str(tmp_path), "levin", "xrlflow")
    assert (status, out.splitlines()) == (0, [f"levin: {ship.SAME}", f"xrlflow: {ship.SAME}"])
    assert set(json.loads((tmp_path / "seconds.json").read_text())) == {"levin", "xrlflow"}
    assert len(copies) == 2
    said(monkeypatch, capsys, "--out", str(tmp_path), "levin", "xrlflow")
    assert len(copies) == 2  # both are there


def test_another_file_is_told_and_can_be_put_into_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, copies: list[list[str]]
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    monkeypatch.setattr(ship, "shipped", lambda name: package / f"{name}.npz")
    shutil.copyfile(shipped("levin"), package / "levin.npz")
    meta, arrays = read_arrays(package / "levin.npz", "levin", "policy of chains")
    write_arrays(package / "levin.npz", meta, arrays | {"weights/rule": arrays["weights/rule"] + 1})
    _, out, _ = said(monkeypatch, capsys, "--out", str(tmp_path / "out"), "levin")
    assert out == f"levin: {ship.OTHER}\n"
    assert (package / "levin.npz").read_bytes() != shipped("levin").read_bytes()
    said(monkeypatch, capsys, "--out", str(tmp_path / "out"), "levin", "--install")
    assert (package / "levin.npz").read_bytes() == shipped("levin").read_bytes()


def test_what_fails_and_what_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(words: list[str], **_: Any) -> None:
        raise subprocess.CalledProcessError(2, words)

    monkeypatch.setattr(ship.subprocess, "run", fail)
    status, _, err = said(monkeypatch, capsys, "--out", str(tmp_path), "go")
    assert status == 1 and "returned non-zero exit status 2" in err and not (tmp_path / "go.npz").exists()
    with pytest.raises(SystemExit):
        said(monkeypatch, capsys, "--out", str(tmp_path), "goo")
    assert "no agent 'goo' ships" in capsys.readouterr().err
