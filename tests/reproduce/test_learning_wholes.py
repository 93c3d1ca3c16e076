"""Whole models in half of the time: which models there are, and what the table calls level."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "reproduce" / "learning"), str(ROOT / "reproduce" / "common")]

import run  # noqa: E402 - from reproduce/learning
import wholes  # noqa: E402 - from reproduce/learning

from rlflow import price  # noqa: E402


def row(model: str, name: str, gain: float, seed: int = 0) -> dict[str, Any]:
    role = "without" if name == "portfolio" else "double" if "untrained" in name else "learned"
    budget = wholes.WHOLE if role == "without" else wholes.HALF
    return {"model": model, "name": name, "role": role, "gain": gain, "seed": seed, "budget": budget}


def test_level_is_the_mean_over_seeds_against_the_portfolio() -> None:
    rows = [row("bert-base", "portfolio", 5.0), row("bert-base", "xrlflow", 4.9), row("bert-base", "xrlflow", 5.1, 1)]
    rows += [row("llama-decoder-step", "portfolio", 2.0), row("llama-decoder-step", "xrlflow", 1.9)]
    rows += [row("bert-base", "rlflow", 4.9), row("llama-decoder-step", "rlflow", 2.5)]
    found = list(wholes.lines(rows))
    assert "| `xrlflow` | 5 | 5.00 ± 0.10 | 1.90 |" in found
    assert found[-2:] == [
        "`xrlflow`, in half the time: level with `portfolio` on 1 of 2.",
        "`rlflow`, in half the time: level with `portfolio` on 1 of 2.",
    ]


def test_models_are_of_the_zoo_or_of_a_file() -> None:
    assert wholes.graph_of("llama-decoder-step", None).num_working_nodes > 100
    assert wholes.graph_of("diffusion_unet", None) is None


def test_a_search_of_a_whole_model_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = wholes.graph_of("llama-decoder-step", None)
    found = run.searched(graph, "greedy", price.make("analytic"), "5x", 0)
    assert found["gain"] >= 0.0 and 0 < found["expansions"] <= 5
