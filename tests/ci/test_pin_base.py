"""The digest of the Dockerfile's base is written by a command that asks whoever knows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIGEST = "sha256:" + "0123456789abcdef" * 4


def pinned(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, with no other programs about than those in ``folder``."""
    command = [sys.executable, str(ROOT / ".ci" / "pin_base.py"), "--dockerfile", str(folder / "Dockerfile")]
    environment = {**os.environ, "PATH": str(folder)}
    return subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment, timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Dockerfile").write_bytes((ROOT / "Dockerfile").read_bytes())
    return tmp_path


def test_a_digest_is_asked_for_and_written_and_written_again(folder: Path) -> None:
    docker = folder / "docker"
    docker.write_text(f'#!/bin/sh\ncase "$*" in *"imagetools inspect"*python:3.11*) echo {DIGEST};; *) exit 1;; esac\n')
    docker.chmod(0o755)
    before = (folder / "Dockerfile").read_text()
    done = pinned(folder)
    assert done.returncode == 0, done.stderr
    after = (folder / "Dockerfile").read_text()
    changed = [line for line in after.splitlines() if line not in before.splitlines()]
    assert changed == [f"ARG BASE=python:3.11-slim-bookworm@{DIGEST}"]
    other = DIGEST.replace("0", "f")
    assert pinned(folder, "--digest", other).returncode == 0
    assert (folder / "Dockerfile").read_text() == after.replace(DIGEST, other)


@pytest.mark.parametrize("digest", ["", "latest", "sha256:12"])
def test_what_is_no_digest_changes_nothing(folder: Path, digest: str) -> None:
    before = (folder / "Dockerfile").read_text()
    done = pinned(folder, "--digest", digest)
    assert done.returncode == 1 and "make pin-base DIGEST=sha256:" in done.stderr
    assert (folder / "Dockerfile").read_text() == before
    assert sorted(one.name for one in folder.iterdir()) == ["Dockerfile"]
