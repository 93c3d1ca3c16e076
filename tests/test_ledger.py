"""What one run keeps for the next: whole, trusted and bounded, or nothing and a warning."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from rlflow import ledger
from rlflow.errors import OutputError
from rlflow.ledger import Kind, Ledger, LedgerWarning


def numbers(plain: Any) -> list[int]:
    return [int(one) for one in plain["numbers"]]


SQUARES: Kind[list[int]] = Kind("squares", 3, lambda value: {"numbers": value}, numbers)


@pytest.fixture
def kept(tmp_path: Path) -> Ledger[list[int]]:
    found = Ledger(SQUARES, tmp_path / "squares")
    with warnings.catch_warnings():
        warnings.simplefilter("error", LedgerWarning)
        assert found.recall("one") is None  # there is no folder yet, which is no fault
        found.keep("one", [1, 4, 9], at="2026-01-02", device="here")
    return found


def entry(kept: Ledger[Any], key: str = "one") -> Path:
    return kept.folder / f"{key}.json"


def test_what_is_kept_comes_back(kept: Ledger[list[int]]) -> None:
    assert kept.recall("one") == [1, 4, 9]
    assert kept.recall("two") is None
    assert len(kept) == 1
    kept.keep("one", [16])
    assert kept.recall("one") == [16]
    kept.forget("one")
    kept.forget("one")
    assert kept.recall("one") is None
    assert kept.folder.stat().st_mode & 0o077 == 0


def test_a_fresh_run_recalls_nothing_and_keeps_all(kept: Ledger[list[int]]) -> None:
    fresh = Ledger(SQUARES, kept.folder, fresh=True)
    assert fresh.recall("one") is None
    fresh.keep("two", [25])
    assert kept.recall("two") == [25]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content.replace(b"4", b"5"),  # still JSON, but not as it was written
        lambda content: content.replace(b"squares", b"circles"),
        lambda content: b"\xff" + content,
        lambda content: b"[" * 100_000,
        lambda content: ledger.sealed(SQUARES, '{"numbers": ["x"]}').encode(),  # sound, but no value of this kind
        lambda content: ledger.sealed(SQUARES, "7").encode(),
    ],
)
def test_a_damaged_entry_is_removed_with_a_warning(damage: Any, kept: Ledger[list[int]]) -> None:
    entry(kept).write_bytes(damage(entry(kept).read_bytes()))
    with pytest.warns(LedgerWarning, match=r"one\.json cannot be used"):
        assert kept.recall("one") is None
    assert not entry(kept).exists()


def test_another_version_is_nothing_and_no_fault(kept: Ledger[list[int]]) -> None:
    newer = Ledger(Kind("squares", 4, SQUARES.plain, SQUARES.of), kept.folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LedgerWarning)
        assert newer.recall("one") is None
    assert kept.recall("one") == [1, 4, 9]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the system knows no owners of files")
def test_what_others_could_have_written_is_not_believed(kept: Ledger[list[int]], tmp_path: Path) -> None:
    kept.folder.chmod(0o777)
    with pytest.warns(LedgerWarning, match="Others could have written"):
        assert kept.recall("one") is None
    kept.keep("two", [4])  # the folder is this user's own: it is taken back, without what lay there
    assert kept.folder.stat().st_mode & 0o077 == 0
    assert (kept.recall("one"), kept.recall("two")) == (None, [4])
    link = tmp_path / "link"
    link.symlink_to(kept.folder)
    other = Ledger(SQUARES, link)
    with pytest.warns(LedgerWarning, match="Others could have written"):
        assert other.recall("two") is None
    other.keep("three", [9])
    assert not entry(kept, "three").exists()


def test_a_place_that_cannot_be_written_costs_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file where a folder is needed")
    place = Ledger(SQUARES, tmp_path / "file" / "squares")
    with pytest.warns(LedgerWarning, match="Nothing can be kept"):
        place.keep("one", [1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", LedgerWarning)
        place.keep("two", [2])  # it was said
    assert place.recall("one") is None


def test_what_is_too_old_or_too_much_goes_oldest_first(tmp_path: Path) -> None:
    few = Ledger(Kind("squares", 3, SQUARES.plain, SQUARES.of, entries=3, days=10.0), tmp_path / "few")
    for number in range(5):
        few.keep(f"k{number}", [number])
        path = entry(few, f"k{number}")
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 1000 * (5 - number)))
    few.sweep()
    assert sorted(one.stem for one in few.folder.iterdir()) == ["k2", "k3", "k4"]
    path = entry(few, "k3")
    os.utime(path, (0, path.stat().st_mtime - 11 * 86_400))
    few.sweep()
    assert sorted(one.stem for one in few.folder.iterdir()) == ["k2", "k4"]
    small = Ledger(Kind("squares", 3, SQUARES.plain, SQUARES.of, bytes=1), few.folder)
    small.sweep()
    assert sorted(one.stem for one in few.folder.iterdir()) == ["k4"]  # the newest stays in any case


def test_pruned_by_what_they_are_about(kept: Ledger[list[int]]) -> None:
    kept.keep("two", [4], at="2026-03-04", device="there")
    entry(kept, "bad").write_text("no entry")
    assert kept.prune(lambda about: about.get("device") == "there") == 1
    assert kept.prune(lambda about: about.get("at", "z") < "2026-01-01") == 0
    assert kept.recall("one") == [1, 4, 9]
    assert kept.prune() == 2


def test_an_entry_lies_where_the_user_wants_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    ledger.write(path, SQUARES, [1])
    assert ledger.read(path, SQUARES) == [1]
    with pytest.raises(ValueError, match=r"another version .* version 4"):
        ledger.read(path, Kind("squares", 4, SQUARES.plain, SQUARES.of))
    with pytest.raises(FileNotFoundError):
        ledger.read(tmp_path / "none.json", SQUARES)
    with pytest.raises(OutputError):
        ledger.write(tmp_path / "no" / "folder.json", SQUARES, [1])
    assert [json.loads(line) for line in path.read_text().splitlines()][1] == {"numbers": [1]}


def test_keys_tell_parts_apart() -> None:
    parts = [("a", "b"), ("ab",), ("a", "b", ""), ("b", "a"), (1, "b"), ("1", "b"), ()]
    assert len({ledger.key(*one) for one in parts}) == len(parts)
    assert ledger.key("a", 1) == ledger.key("a", 1)


def test_the_environment_says_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLFLOW_CACHE", str(tmp_path))
    assert Ledger(SQUARES).folder == tmp_path / "squares"
    monkeypatch.delenv("RLFLOW_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert ledger.home() == tmp_path / "xdg" / "rlflow"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert ledger.home() == Path.home() / ".cache" / "rlflow"
