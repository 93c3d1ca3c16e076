"""The C++ unit tests of ``cext/tests``, each as a test of its own: one program is built once, ``--list`` names them."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
_DECLARATION = re.compile(r"^TEST\((\w+)\)", re.MULTILINE)


def _load_builder():
    spec = importlib.util.spec_from_file_location("rlflow_build_native", HERE / "build_native.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


builder = _load_builder()


def declared_tests() -> list[str]:
    """Test names as written in the sources: the workers of a parallel run must agree on them without compiling."""
    files = sorted((ROOT / "cext" / "tests").rglob("*.cc"))
    return sorted(name for path in files for name in _DECLARATION.findall(path.read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def program() -> Path:
    if builder.compiler() is None:
        pytest.skip("no C++ compiler on this machine")
    return builder.build()


@pytest.mark.timeout(900)
def test_the_program_holds_every_declared_test(program: Path) -> None:
    listed = subprocess.run([os.fspath(program), "--list"], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(listed) == declared_tests()
    assert len(set(listed)) == len(listed), "two unit tests share a name"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", declared_tests())
def test_native(program: Path, name: str) -> None:
    result = subprocess.run([os.fspath(program), name], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"{name} ended with status {result.returncode}:\n{result.stdout}{result.stderr}"


def test_an_unknown_unit_test_is_refused(program: Path) -> None:
    result = subprocess.run([os.fspath(program), "no_such_test"], capture_output=True, text=True)
    assert result.returncode == 2
    assert "no_such_test" in result.stderr


def test_the_sanitizer_of_threads_has_the_tests_that_start_threads() -> None:
    everything, threaded = (set(builder.sources(sanitizer)) for sanitizer in ("", "thread"))
    tests = ROOT / "cext" / "tests"
    assert {path for path in everything if path.parent != tests} == {path for path in threaded if path.parent != tests}
    kept = {path.name for path in threaded if path.parent == tests}
    assert kept >= {"main.cc", "test_kernels.cc", "test_types.cc", "test_unrolled.cc"}
    texts = [(tests / name).read_text(encoding="utf-8") for name in kept - {"main.cc"}]
    assert all("std::thread" in text or "Threads{}" in text for text in texts)
