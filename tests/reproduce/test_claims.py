"""The table of claims is that of the results files. (tests/test_sentences.py holds the README to its file.)"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "reproduce"))

import claims  # noqa: E402 - from reproduce


def test_the_table_of_claims_is_that_of_the_files() -> None:
    page = claims.PAGE.read_text(encoding="utf-8")
    assert page == claims.with_table(page), "reproduce/README.md is out of date: run python reproduce/claims.py --write"


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda claim: claim.file)
def test_every_claim_says_where_it_is_from(claim: claims.Claim) -> None:
    rows, machines = claims.read(claim)
    assert rows and machines and all(machine["commit"] and machine["date"] for machine in machines)
    script = re.search(r"reproduce/\S+\.py", claim.command)
    target = re.search(r"make ([a-z-]+)", claim.command)
    assert (script and (ROOT / script[0]).exists()) or (
        target and f"\n{target[1]}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
    )


def test_the_quick_parts_name_scripts_and_options_that_exist() -> None:
    import quick

    assert sum(part.minutes for part in quick.PARTS) <= 25
    for part in quick.PARTS:
        script = (ROOT / "reproduce" / part.name / "run.py").read_text(encoding="utf-8")
        shared = (ROOT / "reproduce" / "common" / "sweep.py").read_text(encoding="utf-8")
        for option in [one for one in part.arguments if one.startswith("--")]:
            assert f'"{option}"' in script + shared, f"{part.name} has no option {option}"


def test_a_part_that_hangs_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    import quick

    child = "import subprocess, sys; subprocess.run(['sleep', '60'])"
    began = time.monotonic()
    hanging = [sys.executable, "-c", f"print('begun', flush=True); {child}"]
    assert quick.status_of(hanging, tmp_path / "log", 0.02) is None
    assert time.monotonic() - began < 20 and (tmp_path / "log").read_text(encoding="utf-8") == "begun\n"
    assert quick.status_of([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log", 1) == 3


def test_what_failed_is_named_and_the_rest_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import quick

    parts = {"good": (1, True), "bad": (1, False), "hanging": (None, True), "late": (0, False)}
    monkeypatch.setattr(quick, "PARTS", tuple(quick.Part(name, (), 1, bars=bars) for name, (_, bars) in parts.items()))
    monkeypatch.setattr(quick, "command", lambda part, into, dirty: [part.name])
    monkeypatch.setattr(quick, "status_of", lambda command, log, minutes: parts[command[0]][0])
    monkeypatch.setattr(sys, "argv", ["quick.py", "--into", str(tmp_path)])
    assert quick.main() == 1
    told = capsys.readouterr().out
    assert "good: done, a bar was missed" in told and "late: done," in told
    assert "bad: FAILED with status 1" in told and "hanging: FAILED (stopped after 6 minutes)" in told
    assert "2 of 4 parts failed: bad, hanging" in told
