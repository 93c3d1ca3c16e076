"""What other packages offer by name: entry points are found, opened only when asked for, and refused in a sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlflow import plugins, search
from rlflow.errors import UsageError

MODULE = """
from dataclasses import dataclass
from typing import ClassVar
from rlflow.search import StopReason, StrategyBase

@dataclass(frozen=True)
class Lazy(StrategyBase):
    '''Does nothing. ``patience``: of nobody.'''

    patience: int = 3
    name: ClassVar[str] = "lazy-of-elsewhere"

    def search(self, problem, rng):
        return StopReason.CONVERGED
"""


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a distribution that offers strategies, as pip would install it."""

    def make(points: str) -> None:
        (tmp_path / "elsewhere_rlflow_test.py").write_text(MODULE)
        info = tmp_path / "elsewhere-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[rlflow.strategies]\n{points}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(search.registry, "_REGISTRY", dict(search.registry._REGISTRY))

    yield make
    sys.modules.pop("elsewhere_rlflow_test", None)


def test_a_strategy_of_another_distribution_is_one_of_ours(distribution) -> None:
    assert "lazy-of-elsewhere" not in search.names()
    distribution("lazy-of-elsewhere = elsewhere_rlflow_test:Lazy")
    assert "lazy-of-elsewhere" in search.names()
    assert "elsewhere_rlflow_test" not in sys.modules  # named, not opened
    made = search.make("lazy-of-elsewhere:patience=5")
    assert search.describe(made) == "lazy-of-elsewhere:patience=5"
    assert isinstance(made, search.Strategy)


@pytest.mark.parametrize(
    ("points", "spec", "says"),
    [
        ("broken = no_such_module_anywhere:X", "broken", "no_such_module_anywhere"),
        ("broken = elsewhere_rlflow_test:Missing", "broken", "Missing"),
        ("other = elsewhere_rlflow_test:Lazy", "other", "calls itself 'lazy-of-elsewhere'"),
        ("lazy-of-elsewhere = elsewhere_rlflow_test:Lazy", "lazy-of-elsewher", "Did you mean lazy-of-elsewhere"),
    ],
)
def test_what_cannot_be_opened_is_a_sentence(distribution, points: str, spec: str, says: str) -> None:
    distribution(points)
    with pytest.raises(UsageError, match=says):
        search.make(spec)


def test_our_own_offers_win_over_another_distributions(distribution) -> None:
    distribution("xrlflow = elsewhere_rlflow_test:Lazy")
    assert search.strategy_class("xrlflow").__module__ == "rlflow.agents.xrlflow.strategy"
    assert plugins.offered("rlflow.strategies")["xrlflow"] == "rlflow.agents.xrlflow.strategy:XRLflow"


def test_the_agents_are_offered_without_being_opened() -> None:
    assert {"rlflow", "xrlflow", "xrlflow-mcts"} <= set(search.names())
    assert plugins.open_offered("rlflow.strategies", "nothing of the kind") is None
    assert plugins.offered("a group that nobody has") == {}
