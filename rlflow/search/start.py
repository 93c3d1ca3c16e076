"""Where a search starts: the core's state of a graph, once its prices are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rlflow.search.limits import Limits
from rlflow.search.prices import Prices, Tell


class Start(Protocol):
    """``names`` of the rules, by number; ``prices`` of what the search will see. ``measurements``: those that pricing
    the starting graph took, the first that the budget counts.
    """

    names: list[str]
    prices: Prices
    measurements: int

    def state(self) -> Any:
        """The state to start from."""
        ...


class Given:
    """A state that is there already: another rewriting system's, or a test's."""

    def __init__(self, state: Any, names: Sequence[str], prices: Prices) -> None:
        self._state, self.names, self.prices, self.measurements = state, list(names), prices, 0

    def state(self) -> Any:
        """The state as it was given; nothing is measured."""
        return self._state


class Rewriting:
    """A graph and the rules that rewrite it. ``profile_rules``: count and time what each rule takes.
    ``pricing_seconds``: what pricing the graph may take; ``on_pricing`` hears how far it is.
    """

    def __init__(
        self,
        graph: Any,
        rules: Any,
        prices: Prices,
        limits: Limits,
        profile_rules: bool = False,
        pricing_seconds: float | None = None,
        on_pricing: Tell | None = None,
    ) -> None:
        from rlflow.rewrite import StopToken, compiled  # the matcher is opened when it is needed

        self._graph, self._ruleset, self._limits, self.prices = graph, compiled(rules), limits, prices
        self._profile, self._seconds, self._tell = profile_rules, pricing_seconds, on_pricing
        self.names: list[str] = list(self._ruleset.names)
        self.measurements = 0
        self._native = StopToken()
        limits.stop.when_stopped(self._native.set)

    def state(self) -> Any:
        """The core's state of the graph; what is not known about its prices is measured."""
        from rlflow.rewrite import State

        left = self._limits.meter.measurements_left()
        self.measurements = self.prices.settle_root(self._graph, self._stopped, left, self._seconds, self._tell)
        return State(self._graph, self._ruleset, self.prices.pricer, stop=self._native, profile=self._profile)

    def _stopped(self) -> bool:
        return self._limits.stop.stopped
