"""``rlflow cost`` as users type it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlflow.cli import main
from rlflow.price.database import Price, PriceContext, PriceDatabase

HERE = PriceContext("a processor", "onnxruntime", "1.0", 1, "all")
PRICES = {
    "aa": Price(2.5, 0.25, 9, kind="Conv", operators="Conv Relu", flops=1e6, bytes=1e5),
    "bb": Price(None, refusal="no"),
    "cc": Price(0.5, 0.01, 9, kind="MatMul", operators="MatMul Add", measured_at="2020-01-01T00:00:00+00:00"),
}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["cost", *map(str, arguments)])


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "prices.sqlite"
    with PriceDatabase(path) as database:
        database.put_many(PRICES, HERE)
    return path


def test_show(base: Path) -> None:
    plain = run("show", "--database", base)
    assert plain.exit_code == 0
    for words in ("3 prices", "onnxruntime 1.0, 1 thread", "1 refusal", "Conv Relu", "2020-01-01"):
        assert words in plain.output
    (place,) = json.loads(run("show", "--database", base, "--json", "--dearest", 1).output)["places"]
    assert (place["device"], place["prices"], place["refusals"]) == ("a processor", 3, 1)
    assert [row["operators"] for row in place["dearest"]] == ["Conv Relu"]


def test_show_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("")
    run("import", tmp_path / "none.jsonl", "--database", tmp_path / "new.sqlite")
    assert "0 prices" in run("show", "--database", tmp_path / "new.sqlite").output


def test_export_then_import(base: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "prices.jsonl", tmp_path / "other.sqlite"
    assert "3 prices" in run("export", file, "--database", base).output
    assert "3 prices read, 3 new" in run("import", file, "--database", other).output
    assert "3 prices read, 0 new" in run("import", file, "--database", other).output
    with PriceDatabase(other) as database:
        assert database.get_many(["aa"], HERE)["aa"].operators == "Conv Relu"
    assert run("export", "-", "--database", base).output == file.read_text()


@pytest.mark.parametrize(
    ("options", "left"), [(["--refusals"], 2), (["--older-than", 365], 2), (["--all"], 0), (["--other-versions"], 3)]
)
def test_prune(base: Path, options: list[object], left: int) -> None:
    assert f", {left} left" in run("prune", "--database", base, *options).output


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        (["--comparisons"], 2),
        (["--all"], 2),
        (["--older-than", "30"], 1),
        (["--older-than", "30", "--comparisons"], 2),
        (["--refusals"], 0),
    ],
)
def test_kept_comparisons_are_counted_and_pruned(
    options: list[str], gone: int, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlflow.ledger import Ledger, now
    from rlflow.race.evidence import COMPARISONS, Evidence

    monkeypatch.setenv("RLFLOW_CACHE", str(base.parent))
    for key, at in (("one", "2026-01-02"), ("other", now())):
        known = Evidence((0.1, 0.2), True, 0.01, 5.0, 30, 2.0, at)
        Ledger(COMPARISONS).keep(key, known, at, device="a processor", runtime="onnxruntime", version="1.0")
    assert "2 comparisons of whole models" in run("show").output
    assert json.loads(run("show", "--json").output)["comparisons"] == 2
    assert "of whole models" not in run("show", "--database", base).output
    run("prune", "--database", base, *options)
    assert len(Ledger(COMPARISONS)) == 2
    told = run("prune", *options).output
    assert (f"{gone} comparison" in told) is (gone > 0)
    assert len(Ledger(COMPARISONS)) == 2 - gone


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["prune"], "Say what to prune"),
        (["import", "no-such-file"], "cannot be read: No such file"),
        (["show", "--database", "/no/such/folder/x.sqlite"], "its folder does not exist"),
        (["calibrate", "no-such-model.onnx"], "does not exist"),
        (["calibrate", "m.onnx", "--resume"], "--resume needs the file"),
        (["calibrate", "m.onnx", "--json", "/no/such/folder/x.json"], "there is no directory"),
        (["calibrate"], "Missing argument"),
    ],
)
def test_mistakes_are_sentences(arguments: list[str], words: str, tmp_path: Path) -> None:
    if arguments[0] == "prune":
        arguments = [*arguments, "--database", str(tmp_path / "x.sqlite")]
    found = run(*arguments)
    assert found.exit_code in (1, 2)
    assert words in found.output
    assert "Traceback" not in found.output


def test_a_bad_file_is_not_imported(base: Path, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text("hello\n")
    found = run("import", file, "--database", base)
    assert found.exit_code == 2
    assert "line 1: expected a JSON object, found 'hello'" in found.output


def _sqlite(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def _foreign(path: Path, kind: str) -> str:
    """Puts something there that holds no prices; what is said of it."""
    if kind == "text":
        path.write_text("precious\n" * 50)
        return "file is not a database"
    if kind == "another program's":
        _sqlite(path, "CREATE TABLE notes (a)", "INSERT INTO notes VALUES (1)")
        return "it has no table of prices"
    if kind == "tables beside prices":
        _sqlite(path, "CREATE TABLE notes (a)", "CREATE TABLE prices (a)")
        return "tables of another program"
    if kind == "other prices":
        _sqlite(path, "CREATE TABLE prices (day, ms)")
        return "its prices are of another program"
    if kind == "a later version":
        with PriceDatabase(path):
            pass
        _sqlite(path, "PRAGMA user_version = 99")
        return "its schema version is 99"
    with PriceDatabase(path) as database:
        database.put_many({f"{number:064}": Price(1.0, 0.1, 5) for number in range(500)}, HERE)
    path.write_bytes(path.read_bytes()[:20_000])
    return "cannot be used as a price database"


@pytest.mark.parametrize(
    "verb", [["show"], ["export", "-"], ["import", "-"], ["prune", "--all"]], ids=lambda one: one[0]
)
@pytest.mark.parametrize(
    "kind", ["text", "another program's", "tables beside prices", "other prices", "a later version", "cut"]
)
def test_a_file_of_the_users_that_holds_no_prices_stays_as_it_is(kind: str, verb: list[str], tmp_path: Path) -> None:
    path = tmp_path / "own.sqlite"
    says = _foreign(path, kind)
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    found = run(*verb, "--database", path)
    assert found.exit_code == 2, found.output
    assert says in found.stderr
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before


def test_reading_prices_touches_no_file(base: Path) -> None:
    before = {one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in base.parent.iterdir()}
    assert "3 prices" in run("show", "--database", base).output
    assert len(run("export", "-", "--database", base).output.splitlines()) == 1 + 3
    assert {one.name: (one.read_bytes(), one.stat().st_mtime_ns) for one in base.parent.iterdir()} == before


def test_prices_that_another_process_has_just_written_are_shown(base: Path) -> None:
    with PriceDatabase(base) as other:
        other.put_many({"ff": Price(1.0, 0.1, 5)}, HERE)
        assert base.with_name(f"{base.name}-wal").exists()
        assert "4 prices" in run("show", "--database", base).output


def test_a_database_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    found = run("import", "-", "--database", tmp_path)
    assert found.exit_code == 2
    assert "cannot be written" in found.stderr


def test_an_export_is_not_written_over_the_prices(base: Path) -> None:
    before = base.read_bytes()
    assert "is the input itself" in run("export", base, "--database", base).output
    assert base.read_bytes() == before


def test_calibrate_writes_rows_and_resumes(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    from test_fidelity import model  # the small model of tests/price

    path, rows = tmp_path / "m.onnx", tmp_path / "rows.json"
    path.write_bytes(model())
    options = ["--variants", 2, "--tolerance", 0.3, "--seconds", 0.2, "--max-noise", 99, "--json", rows]
    first = run("calibrate", path, *options)
    assert first.exit_code == 0, first.output
    assert "sum of operators" in first.output
    kept = json.loads(rows.read_text())
    assert [row["model"] for row in kept["rows"]] == ["m.onnx"] * 3
    again = run("calibrate", path, *options, "--resume")
    assert again.exit_code == 0, again.output
    assert json.loads(rows.read_text()) == kept
    other = run("calibrate", path, *options, "--resume", "--seed", 5)
    assert other.exit_code == 2
    assert "other options (seed)" in other.output


def test_a_plot_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from rlflow.errors import UsageError
    from rlflow.report.plots import scatter

    points = {"regions": [(1.0, 1.1, "a"), (2.0, 1.9, "b")], "operators": [(1.0, 1.3, "a")]}
    for name in ("s.png", "s.svg"):
        scatter(points, tmp_path / name, title="t")
        assert (tmp_path / name).stat().st_size > 1000
    with pytest.raises(UsageError, match=r"end its name in \.png"):
        scatter(points, tmp_path / "s.txt")
