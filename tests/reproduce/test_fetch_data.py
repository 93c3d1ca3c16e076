"""Outside files: each has a known origin, licence and hash, and only the right content is kept."""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "reproduce"))

import fetch_data  # noqa: E402 - from reproduce

LICENCES = {"Apache-2.0", "MIT", "BSD-3-Clause", "CC-BY-4.0"}


def test_every_file_has_an_origin_a_licence_and_a_hash() -> None:
    found = fetch_data.sources()
    assert len({one.file for one in found}) == len(found) > 20
    for one in found:
        assert one.licence in LICENCES, one
        assert len(one.commit) == 40 or one.commit == "HEAD", one  # the hash decides either way
        assert len(one.sha256) == 64 and one.bytes > 0 and one.repository.count("/") == 1
        assert one.packed == (one.file.endswith(".gz") and not one.path.endswith(".gz"))


def test_the_files_on_this_machine_are_those(outside_data: Path) -> None:
    wrong = {one.file: fault for one in fetch_data.sources() if (fault := one.state(outside_data))}
    assert not wrong


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A folder in GitHub's place with two files, and the folder that they are fetched into."""
    rows = []
    for name, packed in (("a.txt", False), ("b.json.gz", True)):
        data = name.encode() * 100
        rows.append({
            "file": name, "repository": "some/one", "commit": "c" * 40, "path": name.removesuffix(".gz"),
            "licence": "MIT", "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "packed": packed,
        })  # fmt: skip
        path = tmp_path / "server" / "some" / "one" / ("c" * 40) / name.removesuffix(".gz")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    listed = tmp_path / "sources.json"
    listed.write_text(json.dumps(rows))
    monkeypatch.setattr(fetch_data, "SOURCES", listed)
    return tmp_path / "server", tmp_path / "into"


def call(server: Path, into: Path, *more: str) -> int:
    return fetch_data.main(["--from", server.as_uri(), "--into", str(into), *more])


def test_files_are_fetched_packed_and_kept(server: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*server, "--check") == 1 and not server[1].exists()
    assert "a.txt is missing" in capsys.readouterr().err
    assert call(*server) == 0
    assert (server[1] / "a.txt").read_bytes() == b"a.txt" * 100
    assert gzip.decompress((server[1] / "b.json.gz").read_bytes()) == b"b.json.gz" * 100
    for path in server[0].rglob("*.*"):
        path.unlink()  # what is there is not fetched again
    assert call(*server) == 0 and call(*server, "--check") == 0


def test_another_content_is_refused_and_not_kept(
    server: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    next(server[0].rglob("a.txt")).write_bytes(b"a.txt" * 99 + b"A.txt")
    assert call(*server) == 1
    assert "a.txt has the SHA-256" in capsys.readouterr().err
    assert sorted(path.name for path in server[1].iterdir()) == ["b.json.gz"]


def test_what_was_changed_afterwards_is_found(server: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*server) == 0
    (server[1] / "b.json.gz").write_bytes(b"no gzip")
    assert call(*server, "--check") == 1 and "b.json.gz cannot be unpacked" in capsys.readouterr().err


def test_where_files_come_from_is_told(server: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*server, "--list", "--only", "a") == 0
    told = capsys.readouterr().out
    assert told.startswith("a.txt: file:") and "MIT" in told and told.count("\n") == 1
