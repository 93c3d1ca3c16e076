"""A price database that something damaged: a warning, and the run goes on with what is sound."""

from __future__ import annotations

import sqlite3
import warnings
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rlflow.price.database import Price, PriceContext, PriceDatabase, PriceDatabaseWarning

HERE = PriceContext("cpu", "onnxruntime", "1.2")
NAMES = [f"signature {k}" for k in range(60)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "prices.sqlite"
    with PriceDatabase(place) as database:
        database.put_many({name: Price(k + 0.5, 0.1, 9, kind="conv") for k, name in enumerate(NAMES)}, HERE)
    with sqlite3.connect(place) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    return place


def used(path: Path) -> dict[str, Price]:
    """Everything that a run does with prices."""
    with PriceDatabase(path) as database:
        found = {**database.get_many(NAMES, HERE), **database.all_here(HERE)}
        database.contexts()
        database.export_to(lambda line: None)
        database.put_many({NAMES[0]: Price(7.0)}, HERE)
        assert database.get_many(NAMES[:1], HERE)[NAMES[0]].ms == 7.0
    return found


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("ms", "abc"), ("ms", -5), ("ms", float("inf")), ("ms", b"\xff"), ("spread_ms", "x"), ("samples", "many"),
        ("measured_at", b"\xff\xfe"), ("flops", "x"), ("bytes", -1.0), ("traits", "abc"), ("traits", b"\xff"),
        ("traits", '["Conv","",[1,2]]'),
    ],
)  # fmt: skip
def test_a_value_that_is_none(path: Path, column: str, value: Any) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE prices SET {column} = ? WHERE signature = 'signature 3'", (value,))
    connection.close()
    with pytest.warns(PriceDatabaseWarning, match="1 prices in .* are no prices"):
        found = used(path)
    assert set(found) == set(NAMES) - {"signature 3"}


@pytest.mark.parametrize("column", ["kind", "signature", "device", "measured_at"])
def test_bytes_that_are_no_text(path: Path, column: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE prices SET {column} = CAST(x'fffe41' AS TEXT) WHERE signature = 'signature 3'")
    connection.close()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        used(path)
    assert any(issubclass(one.category, PriceDatabaseWarning) for one in caught)


def test_flipped_bytes(path: Path) -> None:
    whole, random = path.read_bytes(), Random(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PriceDatabaseWarning)
        for trial in range(60):
            damaged = bytearray(whole)
            # half of them in the first page, where the schema is
            for _ in range(random.choice((1, 3))):
                damaged[random.randrange(4096 if trial % 2 else len(damaged))] = random.randrange(256)
            path.write_bytes(damaged)
            for price in used(path).values():
                assert price.ms is None or price.ms >= 0
            for left in path.parent.iterdir():
                left.unlink()
