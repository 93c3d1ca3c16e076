"""The fuzzer sees what it is there for, and its targets are run."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limits are set as Linux has them")
if not pytestmark.args[0]:
    sys.path.insert(0, str(Path(__file__).parent))
    import driver
    from targets import TARGETS, Target

    from rlflow.errors import ModelError

#: The same ones in every run; `make fuzz` goes on from there.
INPUTS = 100


def crash(data: bytes, _: object) -> None:
    if b"!" in data:
        faulthandler.disable()  # which would print every thread's stack
        os.abort()


def hang(data: bytes, _: object) -> None:
    time.sleep(30 if b"!" in data else 0)


def swallow(data: bytes, _: object) -> None:
    bytearray((4 << 30) if b"!" in data else 1)


def stumble(data: bytes, _: object) -> None:
    raise KeyError("x") if b"!" in data else ModelError("refused")


@pytest.mark.parametrize(
    ("read", "words"),
    [(crash, "died (SIGABRT)"), (hang, "no answer"), (swallow, "MemoryError"), (stumble, "KeyError")],
)
def test_what_is_wrong_is_found(read: object, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "INPUT_SECONDS", 0.1)
    target = Target("planted", lambda: [b"good", b"bad!"], read)  # type: ignore[arg-type]
    found: list[tuple[str, bytes]] = []
    counts = driver.fuzz(target, 1.0, 0, None, lambda outcome, data: found.append((outcome, data)))
    assert words in found[0][0]
    assert found[0][1] == b"bad!"
    assert len(found) == 1, "one for each place"
    assert counts["read"] + counts["refused"] > 0


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_targets_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = TARGETS[name]
    reason = target.missing()
    if reason is not None:
        pytest.skip(reason)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found: list[str] = []
    counts = driver.fuzz(
        target, 20.0, 1, None, lambda outcome, data: found.append(f"{outcome}: {data[:200]!r}"), most=INPUTS
    )
    assert not found
    assert counts["read"] + counts["refused"] > 0
