from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlflow.errors import OutputError, UsageError
from rlflow.report.plots import anytime_curves, lines_against_size


def runs() -> list[dict[str, object]]:
    def point(expansions: int, cost_ms: float) -> dict[str, float]:
        return {"expansions": expansions, "cost_ms": cost_ms}

    return [
        {
            "model": model,
            "strategy": name,
            "expansions": 9,
            "cost_before_ms": 4.0,
            "curve": [point(0, 4.0), point(5, low)],
        }
        for model in ("one", "two", "three", "four")
        for name, low in (("greedy", 3.0), ("beam", 2.0))
    ]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_figures_are_written(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    anytime_curves(runs(), tmp_path / f"curves.{suffix}")
    rows = [{"n": n, "s": s, "t": n * k, "g": 0.0} for n in (10, 100) for k, s in ((1, "a"), (2, "b"))]
    lines_against_size(rows, tmp_path / f"size.{suffix}", x="n", series="s", panels={"t": "s", "g": "gain"})
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"curves.{suffix}", f"size.{suffix}"]
    assert all(path.stat().st_size > 1000 for path in tmp_path.iterdir())


def test_a_figure_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(UsageError, match="unknown kind"):
        anytime_curves(runs(), tmp_path / "curves.nonsense")
    with pytest.raises(OutputError):
        anytime_curves(runs(), tmp_path / "absent" / "curves.png")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"rlflow\[report\]"):
        anytime_curves(runs(), tmp_path / "curves.png")
