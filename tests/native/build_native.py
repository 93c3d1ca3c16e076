"""Compiles the C++ unit tests (``cext/tests`` with ``cext/src`` and ``cext/kernels``) into one program.

A plain script, so that ``make native-test`` needs nothing installed:

    python tests/native/build_native.py [--sanitize [address|thread]] [--run [TEST ...]]

Objects are kept under ``build/native*/`` by the digest of what they were made from: an unchanged file is compiled once.
Without a sanitizer the tests run on the package's own objects, where ``pip install -e`` has left them as new as their
sources.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CEXT = ROOT / "cext"
PLAIN = ["-std=c++20", "-O1", "-g", "-Wall", "-Wextra", "-fvisibility=hidden"]
LIBRARIES = ["-ldl"] if sys.platform == "linux" else []
#: By the sanitizer asked for; "" is none. Those of addresses and of threads cannot be in one program.
SANITIZERS = {"": [], "address": ["-fsanitize=address,undefined"], "thread": ["-fsanitize=thread"]}
SANITIZED = ["-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


class NativeBuildError(RuntimeError):
    """The compiler is missing or refused a file; the message holds what it said."""


def compiler() -> list[str] | None:
    """The C++ compiler's command: $CXX, else the first of g++, c++, clang++ on the path; None where there is none."""
    asked = shlex.split(os.environ.get("CXX", ""))
    if asked and shutil.which(asked[0]):
        return asked
    return next(([name] for name in ("g++", "c++", "clang++") if shutil.which(name)), None)


def digest(*parts: bytes) -> str:
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.hexdigest()[:16]


def build(sanitizer: str = "") -> Path:
    """The path of the test program, after compiling what changed; raises NativeBuildError with the compiler's words.

    ``sanitizer``: a key of :data:`SANITIZERS`.
    """
    command = compiler()
    if command is None:
        raise NativeBuildError(
            "no C++ compiler was found ($CXX, g++, c++, clang++): install one, e.g. `apt-get install g++`"
        )
    flags = [*PLAIN, *SANITIZERS[sanitizer], *(SANITIZED if sanitizer else [])]
    folder = ROOT / "build" / (f"native-{sanitizer}" if sanitizer else "native")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock"):
        files = sources(sanitizer)
        return _build_in(folder, [*command, *flags], files, {} if sanitizer else packaged_objects(files))


def sources(sanitizer: str) -> list[Path]:
    """What the program is made of; the sanitizer of threads has only the tests that start some."""
    found = sorted(path for part in ("src", "kernels", "tests") for path in (CEXT / part).rglob("*.cc"))
    if sanitizer != "thread":
        return found

    def starts_threads(path: Path) -> bool:
        text = path.read_text(encoding="utf-8")
        return path.name == "main.cc" or "#include <thread>" in text or '#include "orders.h"' in text

    return [path for path in found if CEXT / "tests" not in path.parents or starts_threads(path)]


def packaged_objects(sources: list[Path]) -> dict[Path, Path]:
    """By source, the objects of the package's build that need not be compiled again; none where setuptools, which
    tells, is not installed."""
    spec = importlib.util.spec_from_file_location("rlflow_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    recipe = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(recipe)
    except ImportError:
        return {}
    found = {}
    for folder in sorted((ROOT / "build").glob(f"editable-*-{sys.implementation.cache_tag}")):
        for source in sources:
            target = folder / source.relative_to(ROOT).with_suffix(".o")
            if recipe.is_newest(target, recipe.made_from(target, os.fspath(source))):
                found[source] = target
    return found


def _build_in(folder: Path, command: list[str], sources: list[Path], packaged: dict[Path, Path]) -> Path:
    headers = b"".join(path.read_bytes() for path in sorted(CEXT.rglob("*.h")))
    recipe = digest(" ".join(command).encode(), headers)

    def compile_one(source: Path) -> Path:
        if (shipped := packaged.get(source)) is not None:
            return shipped
        target = folder / f"{source.stem}-{digest(recipe.encode(), source.read_bytes())}.o"
        if not target.exists():
            includes = [f"-I{CEXT / part}" for part in ("include", "tests", "src", "kernels")]
            produce(target, [*command, *includes, "-c", os.fspath(source)])
        return target

    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2) as pool:
        objects = list(pool.map(compile_one, sources))
    made = (f"{path.name} {path.stat().st_mtime_ns if path in packaged.values() else ''}" for path in objects)
    program = folder / f"unit_tests-{digest(*(one.encode() for one in made))}"
    if not program.exists():
        produce(program, [*command, *map(os.fspath, objects), "-pthread", *LIBRARIES])
        for stale in folder.iterdir():
            if stale not in {program, folder / "lock", *objects}:
                stale.unlink(missing_ok=True)
    return program


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One build at a time in a folder: the workers of a parallel test run wait, and use what the first one made."""
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file releases it


def produce(target: Path, command: list[str]) -> None:
    """Runs ``command -o target`` through a temporary name, so that an interrupted run leaves no half-written file."""
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    result = subprocess.run([*command, "-o", os.fspath(partial)], capture_output=True, text=True)
    if result.returncode != 0:
        partial.unlink(missing_ok=True)
        raise NativeBuildError(f"{shlex.join(command)}\nended with status {result.returncode}:\n{result.stderr}")
    partial.replace(target)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the C++ unit tests.")
    parser.add_argument(
        "--sanitize", nargs="?", const="address", default="", choices=[name for name in SANITIZERS if name],
        help="with the sanitizers of addresses and undefined behaviour (address, the default), or that of threads",
    )  # fmt: skip
    parser.add_argument("--run", nargs="*", metavar="TEST", help="and run these, or all of them")
    options = parser.parse_args()
    try:
        program = build(options.sanitize)
    except NativeBuildError as error:
        print(error, file=sys.stderr)
        return 1
    print(program, flush=True)
    return 0 if options.run is None else subprocess.run([os.fspath(program), *options.run]).returncode


if __name__ == "__main__":
    sys.exit(main())
