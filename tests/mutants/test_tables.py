"""The tables of faults: all of them apply, and the driver tells a fault that is noticed from one that is not."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def driver() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants_run", Path(__file__).with_name("run.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants_run"] = module
    spec.loader.exec_module(module)
    return module


def test_nearly_every_fault_can_still_be_put_in(driver: ModuleType) -> None:
    """Where code changed a fault is written anew; ``make mutants`` fails over each that does not apply."""
    found = driver.read_tables()
    assert len(found) >= 80
    assert len({one.area for one in found}) >= 10
    texts = {one.file: (ROOT / one.file).read_text() if (ROOT / one.file).is_file() else "" for one in found}
    lost = [one.name for one in found if one.mutated(texts[one.file]) is None]
    assert len(lost) <= 0.1 * len(found), lost
    absent = {test for one in found for test in one.tests if not (ROOT / test.partition("::")[0]).is_file()}
    assert not absent
    assert all(one.tests or one.equivalent for one in found)


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [("a + b", "a - b", "return a - b\n"), ("return", "yield", "yield a + b\n"), ("c", "d", None), ("a", "a", None)],
)
def test_a_fault_applies_where_its_text_is_there_once(
    driver: ModuleType, old: str, new: str, result: str | None
) -> None:
    fault = driver.Mutant("n", "area", "f.py", old, new, ())
    assert fault.mutated("return a + b\n") == result


def test_the_driver_on_a_small_project(tmp_path: Path) -> None:
    """One fault is noticed, one is not, one has no place, one is explained; then nothing is tried again."""
    (tmp_path / "tests/mutants").mkdir(parents=True)
    (tmp_path / "tests/mutants/run.py").write_text(Path(__file__).with_name("run.py").read_text())
    (tmp_path / "halves.py").write_text("def half(x):\n    return x / 2\n\ndef name():\n    return 'half'\n")
    (tmp_path / "test_code.py").write_text("from halves import half\n\ndef test_half():\n    assert half(4) == 2\n")
    row = "[[mutant]]\nname = '{}'\nfile = 'halves.py'\nold = {!r}\nnew = {!r}\ntests = ['test_code.py']\n"
    faults = [("seen", "x / 2", "x / 3"), ("unseen", "'half'", "'third'"), ("lost", "x // 2", "x")]
    table = "".join(row.format(*fault) for fault in faults)
    table += row.format("same", "x / 2", "x * 0.5") + "equivalent = 'the same number'\n"
    (tmp_path / "tests/mutants/small.toml").write_text(table)
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "tests/mutants/run.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 1, done.stderr
        assert "1 of 4 killed (25.0%)" in done.stdout
        assert "equivalent: same: the same number" in done.stdout
        assert "survived: unseen" in done.stdout
        assert "does not apply: lost" in done.stdout
    lines = (tmp_path / "build/mutants/results.jsonl").read_text().splitlines()
    assert [json.loads(line)["outcome"] for line in lines] == ["killed", "survived", "does not apply"]
    assert (tmp_path / "halves.py").read_text().startswith("def half(x):\n    return x / 2")
