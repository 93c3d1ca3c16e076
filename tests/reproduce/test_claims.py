"""The table of claims is that of the results files. (tests/test_sentences.py holds the README to its file.)"""

from __future__ import annotations

import re
import sys
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
