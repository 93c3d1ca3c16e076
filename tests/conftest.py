"""Shared by all tests: a private cache, the outside data (or the reason to skip), and this machine's small size."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests import learnt

ROOT = Path(__file__).resolve().parents[1]

# Set before any test module is imported: no test may touch the user's own measurements, and the threads of numerical
# libraries must not multiply with the workers of a parallel run.
_CACHE = tempfile.mkdtemp(prefix="rlflow-test-cache-")
os.environ["RLFLOW_CACHE"] = _CACHE
learnt.share()
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NO_COLOR", "1")
# Hundreds of processes are started; without bytecode on disk each would compile the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tests of the core alone make graphs as they are imported, which closes the table to the operators that this adds.
import rlflow.ops  # noqa: E402, F401

# Helper modules beside the tests (tests/search/words.py) are imported by their plain names.
sys.path += [str(folder) for folder in sorted((ROOT / "tests").iterdir()) if folder.is_dir()]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--skips", metavar="FILE", help="write the tests that were skipped, and why, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """In a parallel run the controller alone hears of every test."""
    if config.getoption("--skips") and not hasattr(config, "workerinput"):
        from skips import Skips

        config.pluginmanager.register(Skips(Path(config.getoption("--skips"))))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A comparison of two real times is true in one of a few tries, or wrong: other processes spoil single samples."""
    for item in items:
        if item.get_closest_marker("clock"):
            item.add_marker(pytest.mark.flaky(reruns=4, reruns_delay=1))


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(_CACHE, ignore_errors=True)


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test's own, for tests that look at what is in it."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("RLFLOW_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def repo_root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def outside_data() -> Path:
    """Files of other projects that tests compare with; they are not part of this repository."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the outside data (../shared/data beside the repository) is not on this machine")
    return folder
