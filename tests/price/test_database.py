"""The price database: exact, shared, and never in the way."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlflow.errors import UsageError
from rlflow.price.database import Price, PriceContext, PriceDatabase, PriceDatabaseWarning, default_path

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


FULL = Price(
    2.5, 0.25, 9, clock="cpu time; load 0.1", kind="Conv", operators="Conv Relu", flops=1e6, bytes=1e5,
    measured_at="2026-01-02T03:04:05+00:00", traits='["Conv","d9 ",[4.1589,1.3863,1.7918,2.1972,0.0]]',
)  # fmt: skip
ELSEWHERE = PriceContext("another", "openvino", "2.0", 2, "all")
#: The tables that earlier versions made.
VERSION_1 = (
    "signature TEXT NOT NULL, device TEXT NOT NULL, runtime TEXT NOT NULL, version TEXT NOT NULL, "
    "threads INTEGER NOT NULL, level TEXT NOT NULL, ms REAL, spread_ms REAL, samples INTEGER NOT NULL, refusal TEXT, "
    "measured_at TEXT NOT NULL"
)
VERSION_2 = (
    f"{VERSION_1}, clock TEXT NOT NULL DEFAULT '', kind TEXT NOT NULL DEFAULT '', operators TEXT NOT NULL DEFAULT '', "
    "flops REAL NOT NULL DEFAULT 0, bytes REAL NOT NULL DEFAULT 0"
)
_OLD = ("aa", "a processor", "onnxruntime", "1.0", 1, "all", 1.5, 0.1, 9, None, "2026-01-01T00:00:00+00:00")
ROW_1, OLD_1 = _OLD, Price(1.5, 0.1, 9, measured_at=_OLD[-1])
ROW_2, OLD_2 = (
    (*_OLD, "cpu time", "Conv", "Conv", 1e6, 1e5),
    replace(OLD_1, clock="cpu time", kind="Conv", operators="Conv", flops=1e6, bytes=1e5),
)


class TestUpkeep:
    def test_what_was_measured_and_how_is_kept(self, path: Path) -> None:
        with PriceDatabase(path) as base:
            base.put_many({"aa": FULL}, HERE)
            assert base.get_many(["aa"], HERE) == {"aa": FULL}
            assert base.all_here(HERE) == {"aa": FULL}
            assert base.all_here(ELSEWHERE) == {}

    @pytest.mark.parametrize(
        ("version", "columns", "row", "price"), [(1, VERSION_1, ROW_1, OLD_1), (2, VERSION_2, ROW_2, OLD_2)]
    )
    def test_a_file_of_an_earlier_version_is_upgraded(
        self, path: Path, version: int, columns: str, row: tuple[Any, ...], price: Price
    ) -> None:
        path.parent.mkdir()
        old = sqlite3.connect(path)
        old.execute(
            f"CREATE TABLE prices ({columns}, PRIMARY KEY (signature, device, runtime, version, threads, level)) "
            "WITHOUT ROWID"
        )
        old.execute(f"INSERT INTO prices VALUES ({', '.join('?' * len(row))})", row)
        old.execute(f"PRAGMA user_version = {version}")
        old.commit()
        old.close()
        with PriceDatabase.copy_of(path) as base:
            assert base.all_here(HERE) == {"aa": price}
        for _ in range(2):
            with PriceDatabase(path) as base:
                assert base.get_many(["aa"], HERE) == {"aa": price}
        with PriceDatabase(path) as base:
            base.put_many({"aa": FULL}, HERE)
            assert base.get_many(["aa"], HERE) == {"aa": FULL}

    def test_places_are_summed_up_latest_first(self, path: Path) -> None:
        with PriceDatabase(path) as base:
            base.put_many({"aa": FULL, "bb": Price(None, refusal="no", measured_at="2026-01-01T00:00:00+00:00")}, HERE)
            base.put_many({"aa": replace(FULL, measured_at="2026-03-01T00:00:00+00:00")}, ELSEWHERE)
            latest, first = base.contexts()
        assert (latest.context, latest.prices, latest.refusals) == (ELSEWHERE, 1, 0)
        assert (first.context, first.prices, first.refusals, first.relative_spread) == (HERE, 2, 1, 0.1)
        assert (first.oldest[:10], first.newest[:10]) == ("2026-01-01", "2026-01-02")

    def test_export_and_import_are_inverse(self, path: Path, tmp_path: Path) -> None:
        lines: list[str] = []
        with PriceDatabase(path) as base:
            base.put_many({"aa": FULL, "bb": Price(None, refusal="ü no")}, HERE)
            base.put_many({"aa": FULL}, ELSEWHERE)
            assert base.export_to(lines.append) == 3
        with PriceDatabase(tmp_path / "other.sqlite") as other:
            assert other.import_from(lines, "f") == (3, 3)
            assert other.import_from(lines, "f") == (3, 0)
            assert other.get_many(["aa"], ELSEWHERE) == {"aa": FULL}
            again: list[str] = []
            other.export_to(again.append)
        assert again == lines

    def test_lines_of_version_2_are_read(self, path: Path) -> None:
        names = ("signature", "device", "runtime", "version", "threads", "level", "ms", "spread_ms", "samples",
                 "refusal", "measured_at", "clock", "kind", "operators", "flops", "bytes")  # fmt: skip
        header = {"format": "rlflow prices", "version": 2, "prices": 1}
        lines = [json.dumps(header), json.dumps(dict(zip(names, ROW_2, strict=True)))]
        with PriceDatabase(path) as base:
            assert base.import_from(lines, "f") == (1, 1)
            assert base.all_here(HERE) == {"aa": OLD_2}

    @pytest.mark.parametrize(("here", "kept"), [("2025-01-01", 2.5), ("2027-01-01", 9.0)])
    def test_the_more_recent_of_two_stays(self, path: Path, tmp_path: Path, here: str, kept: float) -> None:
        lines: list[str] = []
        with PriceDatabase(path) as base:
            base.put_many({"aa": FULL}, HERE)
            base.export_to(lines.append)
        with PriceDatabase(tmp_path / "other.sqlite") as other:
            other.put_many({"aa": Price(9.0, measured_at=f"{here}T00:00:00+00:00")}, HERE)
            other.import_from(lines, "f")
            assert other.get_many(["aa"], HERE)["aa"].ms == kept

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda lines: [], "the file is empty"),
            (lambda lines: ["not json\n"], "line 1: expected a JSON object"),
            (lambda lines: ['{"a": 1}\n'], "line 1: this is no file of 'rlflow cost export'"),
            (
                lambda lines: [lines[0].replace('"version": 3', '"version": 7'), *lines[1:]],
                "its version is 7; this program reads 2 and 3",
            ),
            (
                lambda lines: [lines[0].replace('"version": 3', '"version": 2'), *lines[1:]],
                "line 2: expected the fields",
            ),
            (lambda lines: [lines[0], lines[1].replace(', "traits": "[', ', "trait": "[')], "expected the fields"),
            (lambda lines: [lines[0], lines[1].replace("4.1589,", "")], "field 'traits' is '[\"Conv\""),
            (lambda lines: [lines[0], re.sub('"traits": .*', '"traits": 3}', lines[1])], "field 'traits' is 3"),
            (lambda lines: [lines[0], "[1]\n"], "line 2: expected the fields"),
            (lambda lines: [lines[0], lines[1].replace('"threads": 1', '"threads": "x"')], "field 'threads' is 'x'"),
            (lambda lines: [lines[0], lines[1].replace('"ms": 2.5', '"ms": -1')], "field 'ms' is -1"),
            (lambda lines: [lines[0], lines[1].replace('"ms": 2.5', '"ms": NaN')], "field 'ms' is nan"),
            (lambda lines: [lines[0], lines[1].replace('"ms": 2.5', '"ms": 1' + "0" * 400)], "field 'ms' is 1"),
            (lambda lines: [lines[0], lines[1].replace('"threads": 1', '"threads": 1' + "0" * 40)], "below 2^63"),
            (lambda lines: [lines[0], lines[1].replace('"samples": 9', '"samples": -1')], "field 'samples' is -1"),
            (lambda lines: [lines[0], lines[1].replace('"flops": 1000000.0', '"flops": "x"')], "field 'flops' is 'x'"),
            (lambda lines: [*lines, lines[1][:40]], "line 3: expected a JSON object"),
        ],
    )
    def test_a_bad_import_takes_nothing_in(self, path: Path, change: Callable[..., list[str]], words: str) -> None:
        lines: list[str] = []
        with PriceDatabase(path) as base:
            base.put_many({"aa": FULL}, HERE)
            base.export_to(lines.append)
            base.prune(everything=True)
            with pytest.raises(UsageError, match=re.escape(words)):
                base.import_from(change(lines), "prices.jsonl")
            assert base.count() == 0

    @pytest.mark.parametrize(
        ("what", "left"),
        [
            ({}, ["aa", "bb", "cc", "dd"]),
            ({"before": "2026-02-01"}, ["bb", "cc", "dd"]),
            ({"refusals": True}, ["aa", "cc", "dd"]),
            ({"other_than": PriceContext("a processor", "onnxruntime", "2.0")}, ["cc", "dd"]),
            ({"refusals": True, "before": "2026-02-01"}, ["cc", "dd"]),
            ({"everything": True}, []),
        ],
    )
    def test_prune(self, path: Path, what: dict[str, Any], left: list[str]) -> None:
        later = "2026-03-01T00:00:00+00:00"
        with PriceDatabase(path) as base:
            base.put_many({"aa": FULL, "bb": Price(None, refusal="no", measured_at=later)}, HERE)
            base.put_many({"cc": replace(FULL, measured_at=later)}, replace(HERE, version="2.0"))
            base.put_many({"dd": replace(FULL, measured_at=later)}, ELSEWHERE)
            assert base.prune(**what) == 4 - len(left)
            rows: list[str] = []
            base.export_to(rows.append)
            assert sorted(json.loads(row)["signature"] for row in rows[1:]) == left


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
        monkeypatch.setattr("rlflow.price.sqlite_file._BUSY_SECONDS", 0.1)
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
from rlflow.price.database import Price, PriceContext, PriceDatabase
path, who, die = sys.argv[1], sys.argv[2], sys.argv[3] == "die"
here = PriceContext("a processor", "onnxruntime", "1.0", 1, "all")
with PriceDatabase(path) as base:
    for n in range(60):
        base.put_many({f"{who}-{n}": Price(float(n), 0.0, 1), "shared": Price(float(n), 0.0, 1)}, here)
    if die:
        base._file._connection.execute("BEGIN IMMEDIATE")
        base._file._connection.execute("DELETE FROM prices")
        os.kill(os.getpid(), signal.SIGKILL)
"""


UPGRADER = """
import sys
from rlflow.price.database import PriceContext, PriceDatabase
with PriceDatabase(sys.argv[1]) as base:
    lines = []
    base.export_to(lines.append)
    base.import_from(lines, "itself")
    base.prune(refusals=True)
"""


class TestProcesses:
    def test_upkeep_at_the_same_time(self, path: Path) -> None:
        with PriceDatabase(path) as base:
            base.put_many({f"{n:032x}": Price(float(n), 0.0, 1) for n in range(500)}, HERE)
        command = [sys.executable, "-W", "error", "-c", UPGRADER, str(path)]
        running = [subprocess.Popen(command, env=_environment(), stderr=subprocess.PIPE) for _ in range(3)]
        errors = [process.communicate(timeout=60)[1] for process in running]
        assert [process.returncode for process in running] == [0, 0, 0], errors
        with PriceDatabase(path) as base:
            assert base.count() == 500

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
