"""Small faults put into the program on purpose, one at a time: does a test notice?

    python tests/mutants/run.py [--only NAME …] [--area AREA …] [--jobs N] [--fresh] [--list]

The faults are in the tables beside this file, ``AREA.toml``: a name, a file, the text there that is replaced (it must
occur once, so lines may move), the new text, and the tests that should notice. A fault that changes nothing that anyone
can see says why (``equivalent``). Each is tried in a copy of the tree, never in the tree itself; of a C++ file the
one object is compiled again. What was found is kept in ``build/mutants/results.jsonl`` and is not tried again as long
as the fault, the file and the tests are the same. Exit status 1 where fewer than 95 of 100 are noticed, or one does
not apply.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import tomllib
except ImportError:  # Python 3.10: pytest brings the same by its older name
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build" / "mutants"
RESULTS = WORK / "results.jsonl"
BAR = 0.95
#: Seconds that the tests of one fault may take; a fault that makes them hang is noticed too.
TIMEOUT = 240.0
FIELDS = {"name", "file", "old", "new", "tests", "equivalent", "timeout"}
#: What a build leaves in the tree beside the sources: copied, so that one object is compiled and not all.
BUILT = ("rlflow/_core*.so", "rlflow/_core.pyi", "cext/cython/_core.cpp", "build/temp*", "build/editable*")


@dataclass(frozen=True)
class Mutant:
    """One fault. ``tests``: files or node ids; ``equivalent``: why no test can notice."""

    name: str
    area: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""
    timeout: float = TIMEOUT

    @property
    def native(self) -> bool:
        return self.file.endswith(".cc")

    def mutated(self, text: str) -> str | None:
        """The file with the fault; ``None`` where the text is not there, or not once."""
        return text.replace(self.old, self.new) if text.count(self.old) == 1 and self.old != self.new else None

    def digest(self, root: Path) -> str:
        """Of everything that decides what becomes of it."""
        files = [self.file, *dict.fromkeys(test.partition("::")[0] for test in self.tests)]
        contents = [(root / file).read_bytes() for file in files if (root / file).is_file()]
        parts = [self.old.encode(), self.new.encode(), " ".join(self.tests).encode(), *contents]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def read_tables(folder: Path = HERE) -> list[Mutant]:
    """The faults of all tables. Raises ValueError for an unknown field or a name that is there twice."""
    found: dict[str, Mutant] = {}
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            if set(entry) - FIELDS or entry["name"] in found:
                raise ValueError(f"{path.name}: {entry['name']}: an unknown field, or a name that is there twice")
            found[entry["name"]] = Mutant(area=path.stem, **{**entry, "tests": tuple(entry["tests"])})
    return list(found.values())


# --- copies of the tree -----------------------------------------------------------------------------------------------


class Copy:
    """A copy of the tree in which one fault at a time is tried."""

    def __init__(self, number: int) -> None:
        self.root = WORK / f"tree-{os.getpid()}-{number}"
        self.compiled = False
        shutil.rmtree(self.root, ignore_errors=True)
        for name in sorted({*_tracked(), *_built()}):
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)

    def pytest(self, tests: tuple[str, ...], timeout: float) -> tuple[int | None, str]:
        """The exit status (None: it took too long) and the last lines of a run of tests."""
        environment = {**os.environ, "PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]
        return _run(command, self.root, environment, timeout)

    def build(self) -> tuple[int | None, str]:
        """Compile what is newer than its object, and link."""
        return _run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], self.root, dict(os.environ), 900.0)

    def attempt(self, mutant: Mutant) -> dict[str, Any]:
        """What becomes of one fault; the copy is as it was afterwards."""
        path = self.root / mutant.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        changed = mutant.mutated(text)
        if changed is None:
            return {"outcome": "does not apply", "detail": f"the text is {text.count(mutant.old)} times in the file"}
        if mutant.native and not self.compiled:  # so that later builds compile the one object alone
            status, told = self.build()
            if status != 0:
                return {"outcome": "does not build", "detail": f"without a fault: {told}"}
            self.compiled = True
        kept = [*self.root.glob(f"build/temp*/{mutant.file[:-3]}.o"), *self.root.glob("rlflow/_core*.so")]
        for file in [path, *kept]:
            shutil.copy2(file, f"{file}.kept")
        try:
            path.write_text(changed, encoding="utf-8")
            return self._judged(mutant)
        finally:
            for file in [path, *kept]:
                os.replace(f"{file}.kept", file)

    def _judged(self, mutant: Mutant) -> dict[str, Any]:
        if mutant.native:
            status, told = self.build()
            if status != 0:
                return {"outcome": "does not build", "detail": told}
        status, told = self.pytest(mutant.tests, mutant.timeout)
        if status in (4, 5):  # usage, no tests
            return {"outcome": "no tests", "detail": told}
        return {"outcome": "survived" if status == 0 else "killed", "detail": "timeout" if status is None else told}


def _tracked() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def _built() -> list[str]:
    found = [path for pattern in BUILT for path in ROOT.glob(pattern)]
    files = [file for path in found for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]
    return [file.relative_to(ROOT).as_posix() for file in files]


def _run(command: list[str], folder: Path, environment: dict[str, str], timeout: float) -> tuple[int | None, str]:
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return None, ""
    lines = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))] or output.splitlines()[-3:]
    return process.returncode, " | ".join(lines)[:400]


# --- all of them ------------------------------------------------------------------------------------------------------


class Ledger:
    """The file of what was found: one line a fault, written as soon as it is known."""

    def __init__(self, path: Path, fresh: bool) -> None:
        self.path = path
        self.lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() and not fresh else []
        self.rows = {row["name"]: row for row in map(json.loads, lines)}
        if fresh:
            path.unlink(missing_ok=True)

    def known(self, mutant: Mutant) -> dict[str, Any] | None:
        """The row of the same fault in the same file under the same tests."""
        row = self.rows.get(mutant.name)
        return row if row is not None and row["digest"] == mutant.digest(ROOT) else None

    def add(self, mutant: Mutant, found: dict[str, Any], seconds: float) -> None:
        row = {"name": mutant.name, "area": mutant.area, "digest": mutant.digest(ROOT), "seconds": round(seconds, 1)}
        with self.lock:
            self.rows[mutant.name] = {**row, **found}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self.rows[mutant.name]) + "\n")
            print(f"{mutant.area:10} {mutant.name:44} {found['outcome']:15} {seconds:5.0f} s", flush=True)


def try_all(mutants: list[Mutant], ledger: Ledger, jobs: int) -> None:
    """Every fault that has no row yet, and no reason to be left alone."""
    todo = [one for one in mutants if not one.equivalent and ledger.known(one) is None]
    if not todo:
        return
    copies: queue.Queue[Copy] = queue.Queue()
    for number in range(min(jobs, len(todo))):
        copies.put(Copy(number))

    def one(mutant: Mutant) -> None:
        copy, started = copies.get(), time.monotonic()
        try:
            ledger.add(mutant, copy.attempt(mutant), time.monotonic() - started)
        finally:
            copies.put(copy)

    try:
        _must_pass(copies, todo)
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, todo))
    finally:
        for copy in list(copies.queue):
            shutil.rmtree(copy.root, ignore_errors=True)


def _must_pass(copies: queue.Queue[Copy], todo: list[Mutant]) -> None:
    """A test that fails without the fault says nothing about it: raises SystemExit."""
    tests = sorted({test for mutant in todo for test in mutant.tests})
    copy = copies.get()
    status, told = copy.pytest(tuple(tests), 1800.0)
    if status != 0:
        raise SystemExit(f"mutants: the tests do not pass without a fault: {told}")
    copies.put(copy)


def report(mutants: list[Mutant], ledger: Ledger) -> int:
    """The table, what needs a look, and the exit status."""
    rows = {one.name: "equivalent" if one.equivalent else _outcome(one, ledger) for one in mutants}
    print(f"\n{'area':10} {'faults':>7} {'killed':>7}  rest")
    for area in dict.fromkeys(one.area for one in mutants):
        outcomes = Counter(rows[one.name] for one in mutants if one.area == area)
        rest = ", ".join(f"{count} {name}" for name, count in outcomes.items() if name != "killed")
        print(f"{area:10} {outcomes.total():7} {outcomes['killed']:7}  {rest}")
    for one in mutants:
        if one.equivalent:
            print(f"equivalent: {one.name}: {one.equivalent}")
        elif rows[one.name] != "killed":
            print(f"{rows[one.name]}: {one.name} ({one.file}): {ledger.rows.get(one.name, {}).get('detail', '')}")
    counts = Counter(rows.values())
    print(f"\n{counts['killed']} of {len(rows)} killed ({counts['killed'] / max(len(rows), 1):.1%})")
    unclear = counts.total() - counts["killed"] - counts["equivalent"] - counts["survived"]
    return 0 if counts["killed"] >= BAR * len(rows) and not unclear else 1


def _outcome(mutant: Mutant, ledger: Ledger) -> str:
    row = ledger.known(mutant)
    return "not tried" if row is None else row["outcome"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these faults")
    parser.add_argument("--area", nargs="+", help="the faults of these tables")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="try all again")
    parser.add_argument("--list", action="store_true", help="try nothing, print the table")
    options = parser.parse_args()
    mutants = read_tables()
    chosen = [
        one
        for one in mutants
        if (options.only is None or one.name in options.only) and (options.area is None or one.area in options.area)
    ]
    if not chosen:
        raise SystemExit("mutants: there is no such fault; --list shows all.")
    ledger = Ledger(RESULTS, options.fresh)
    if not options.list:
        try_all(chosen, ledger, max(1, options.jobs))
    return report(chosen, ledger)


if __name__ == "__main__":
    raise SystemExit(main())
