"""The price database: exact, shared, and never in the way."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from rlflow.cost.database import Price, PriceContext, PriceDatabase, PriceDatabaseWarning, default_path

HERE = PriceContext("a processor", "onnxruntime", "1.0", 1, "all")
PRICES = {"aa": Price(1.5, 0.1, 9), "bb": Price(None, refusal="The runtime refused it.")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "prices.sqlite"


@pytest.fixture(autouse=True)
def _no_unexpected_warnings() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("error", PriceDatabaseWarning)
        yield


class TestPrices:
    def test_come_back_in_a_later_process(self, path: Path) -> None:
        with PriceDatabase(path) as first:
            first.put_many(PRICES, HERE)
        with PriceDatabase(path) as second:
            found = second.get_many(["aa", "bb", "cc", "aa"], HERE)
        assert set(found) == {"aa", "bb"}
        assert (found["aa"].ms, found["aa"].spread_ms, found["aa"].samples) == (1.5, 0.1, 9)
        assert found["bb"].ms is None
        assert found["bb"].refusal == "The runtime refused it."
        assert found["aa"].measured_at[:2] == "20"

    def test_a_new_price_replaces_the_old(self, path: Path) -> None:
        with PriceDatabase(path) as base:
            base.put_many(PRICES, HERE)
            base.put_many({"bb": Price(2.0, 0.0, 3)}, HERE)
            assert base.get_many(["bb"], HERE)["bb"].ms == 2.0
            assert base.get_many(["bb"], HERE)["bb"].refusal is None
            assert base.count() == 2

    @pytest.mark.parametrize(
        "other",
        [
            PriceContext("another", "onnxruntime", "1.0", 1, "all"),
            PriceContext("a processor", "other", "1.0", 1, "all"),
            PriceContext("a processor", "onnxruntime", "1.1", 1, "all"),
            PriceContext("a processor", "onnxruntime", "1.0", 2, "all"),
            PriceContext("a processor", "onnxruntime", "1.0", 1, "disable"),
        ],
    )
    def test_hold_only_where_they_were_measured(self, path: Path, other: PriceContext) -> None:
        with PriceDatabase(path) as base:
            base.put_many(PRICES, HERE)
            assert base.get_many(PRICES, other) == {}

    def test_thousands_at_once(self, path: Path) -> None:
        many = {f"{n:032x}": Price(float(n), 0.0, 1) for n in range(3000)}
        with PriceDatabase(path) as base:
            base.put_many(many, HERE)
            found = base.get_many(many, HERE)
        assert {key: price.ms for key, price in found.items()} == {key: price.ms for key, price in many.items()}

    def test_context_names_the_provider_unless_it_is_the_processor(self) -> None:
        description = {
            "device": "d",
            "runtime": "onnxruntime",
            "version": "1",
            "provider": "CPUExecutionProvider",
            "threads": 2,
        }
        assert PriceContext.of(description, "all") == PriceContext("d", "onnxruntime", "1", 2, "all")
        assert PriceContext.of(description | {"provider": "GPU"}, "all").runtime == "onnxruntime/GPU"


class TestPlace:
    def test_environment_decides(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("RLFLOW_CACHE", str(tmp_path))
        assert default_path() == tmp_path / "prices.sqlite"
        monkeypatch.delenv("RLFLOW_CACHE")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert default_path() == tmp_path / "xdg" / "rlflow" / "prices.sqlite"
        monkeypatch.delenv("XDG_CACHE_HOME")
        assert default_path() == Path.home() / ".cache" / "rlflow" / "prices.sqlite"

    def test_an_unwritable_place_is_replaced_by_memory(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("a file where a folder is needed")
        with pytest.warns(PriceDatabaseWarning, match="kept in memory"):
            base = PriceDatabase(tmp_path / "file" / "prices.sqlite")
        with base:
            assert not base.persistent
            base.put_many(PRICES, HERE)
            assert base.get_many(["aa"], HERE)["aa"].ms == 1.5

    def test_use_after_close_is_a_mistake(self, path: Path) -> None:
        base = PriceDatabase(path)
        base.close()
        with pytest.raises(sqlite3.ProgrammingError):
            base.get_many(["aa"], HERE)


class TestDamage:
    @pytest.mark.parametrize(
        "content", [b"this is not a database at all, only some text" * 50, b"SQLite format 3\x00" + b"\xff" * 4000]
    )
    def test_a_damaged_file_is_set_aside(self, path: Path, content: bytes) -> None:
        path.parent.mkdir()
        path.write_bytes(content)
        with pytest.warns(PriceDatabaseWarning, match=r"set aside as prices\.sqlite\.corrupt"):
            base = PriceDatabase(path)
        with base:
            base.put_many(PRICES, HERE)
            assert base.persistent
        assert path.with_name("prices.sqlite.corrupt").read_bytes() == content
        with PriceDatabase(path) as again:
            assert again.count() == 2

    def test_damage_that_shows_later(self, path: Path) -> None:
        with PriceDatabase(path) as base:
            base.put_many({f"{n:032x}": Price(1.0, 0.0, 1) for n in range(2000)}, HERE)
        pages = bytearray(path.read_bytes())
        pages[4096:] = b"\x55" * (len(pages) - 4096)
        path.write_bytes(bytes(pages))
        with PriceDatabase(path) as base:
            with pytest.warns(PriceDatabaseWarning, match="set aside"):
                assert base.get_many([f"{1:032x}"], HERE) == {}
            base.put_many(PRICES, HERE)
            assert base.get_many(["aa"], HERE)["aa"].ms == 1.5
        assert path.with_name("prices.sqlite.corrupt").exists()

    def test_a_second_damaged_file_does_not_overwrite_the_first(self, path: Path) -> None:
        path.parent.mkdir()
        for _ in range(2):
            path.write_bytes(b"text" * 1000)
            with pytest.warns(PriceDatabaseWarning), PriceDatabase(path):
                pass
        assert path.with_name("prices.sqlite.corrupt-1").exists()

    def test_the_file_of_a_newer_program_is_set_aside(self, path: Path) -> None:
        with PriceDatabase(path):
            pass
        with sqlite3.connect(path) as raw:
            raw.execute("PRAGMA user_version = 99")
        raw.close()
        with pytest.warns(PriceDatabaseWarning, match="version is 99"), PriceDatabase(path) as base:
            assert base.persistent

    def test_a_lock_that_lasts_turns_to_memory(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("rlflow.cost.database._BUSY_SECONDS", 0.1)
        with PriceDatabase(path) as base:
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN EXCLUSIVE")
            with pytest.warns(PriceDatabaseWarning, match="cannot be written"):
                base.put_many(PRICES, HERE)
            assert base.get_many(["aa"], HERE)["aa"].ms == 1.5
            other.close()
        with PriceDatabase(path) as later:
            assert later.count() == 0


WRITER = """
import os, signal, sys
from rlflow.cost.database import Price, PriceContext, PriceDatabase
path, who, die = sys.argv[1], sys.argv[2], sys.argv[3] == "die"
here = PriceContext("a processor", "onnxruntime", "1.0", 1, "all")
with PriceDatabase(path) as base:
    for n in range(60):
        base.put_many({f"{who}-{n}": Price(float(n), 0.0, 1), "shared": Price(float(n), 0.0, 1)}, here)
    if die:
        base._connection.execute("BEGIN IMMEDIATE")
        base._connection.execute("DELETE FROM prices")
        os.kill(os.getpid(), signal.SIGKILL)
"""


class TestProcesses:
    def test_write_at_the_same_time_and_die_half_way(self, path: Path) -> None:
        commands = [
            [sys.executable, "-W", "error", "-c", WRITER, str(path), who, how]
            for who, how in (("one", "live"), ("two", "die"))
        ]
        running = [subprocess.Popen(command, env=_environment(), stderr=subprocess.PIPE) for command in commands]
        errors = [process.communicate(timeout=60)[1] for process in running]
        assert [process.returncode for process in running] == [0, -9], errors
        with PriceDatabase(path) as base:
            assert base.count() == 121
            assert base.get_many(["shared"], HERE)["shared"].ms == 59.0


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
