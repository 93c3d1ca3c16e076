"""A machine that works for others, by the command line; no other cluster is beside it."""

from __future__ import annotations

import importlib.util
import json
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rlflow import zoo
from rlflow.processes import python_command

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'rlflow[ray]'"
    ),
    pytest.mark.xdist_group("ray"),
]


@pytest.mark.slow  # starts a cluster
@pytest.mark.timeout(600)
def test_workers_join_send_and_leave(tmp_path: Path) -> None:
    """The command line from end to end: a machine begins a cluster as a device, and a comparison is sent there."""
    model = tmp_path / "nasrnn.onnx"
    model.write_bytes(zoo.build("nasrnn", steps=1, hidden=4).SerializeToString())
    port, client = free_port(), free_port()
    worker = python_command("rlflow.cli", "main", ["worker", "--device", "here", "--cores", "2", f"--port={port}"])
    told = subprocess.Popen([*worker, f"--client-port={client}"], stdout=subprocess.PIPE, text=True)
    try:
        assert told.stdout is not None
        lines = until(told.stdout, "Working")
        assert lines[0].startswith("Measures as 'here': ")
        assert "rlflow worker --join " in lines[1] and lines[1].rstrip().endswith(f":{port}")
        arguments = ["compare", str(model), "--search", "greedy,annealing", "--budget", "20x", "--seeds", "1"]
        arguments += ["--cost", "analytic", "--workers", f"ray://127.0.0.1:{client}", "--device", "here", "-q"]
        command = python_command("rlflow.cli", "main", [*arguments, "--json", "-"])
        sent = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert sent.returncode == 0, sent.stderr
        assert {row["strategy"] for row in json.loads(sent.stdout)["runs"]} == {"greedy", "annealing"}
    finally:
        told.send_signal(signal.SIGINT)
        assert told.wait(30) == 0


def until(stream: Any, word: str) -> list[str]:
    lines: list[str] = []
    while not lines or word not in lines[-1]:
        line = stream.readline()
        assert line, lines
        lines.append(line)
    return lines


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
