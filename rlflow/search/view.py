"""A problem as one of several searches sees it: everything is shared but where it starts and when it is its turn."""

from __future__ import annotations

from collections.abc import Callable

from rlflow.search.node import SearchNode
from rlflow.search.problem import Problem


class View(Problem):
    """The same budget, clock, best graph and curve as ``problem``, with a starting point of its own.

    ``start``: the node that :meth:`root` returns (default: the problem's). ``turn`` is called before every step; it may
    wait, or raise :class:`rlflow.search.SearchStopped` to end the search that uses this view. ``best``: the cheapest
    node that was visited through this view. ``share``: the part of the seconds left that it is told of, so that what
    cannot be interrupted does not take all.
    """

    __slots__ = ("_news", "_share", "_start", "_turn", "best")  # everything else lives in the problem's own dictionary

    def __init__(
        self,
        problem: Problem,
        start: SearchNode | None = None,
        turn: Callable[[], None] | None = None,
        share: float = 1.0,
    ) -> None:
        self.__dict__ = problem.__dict__
        self._start, self._turn, self._share = start, turn, share
        self._news: SearchNode | None = None
        self.best = start or problem.root()

    def root(self) -> SearchNode:
        """Where this search starts; always the same node."""
        return self._start or super().root()

    def seconds_left(self) -> float | None:
        """This search's part of what is left."""
        left = super().seconds_left()
        return None if left is None else self._share * left

    @property
    def start_cost(self) -> float:
        """Cost of the problem's own starting graph in milliseconds."""
        return super().root().cost

    def keep(self, run: object) -> None:
        """Nothing: a run that is one of several cannot be gone on from alone."""

    def recall(self) -> None:
        """Nothing; see :meth:`keep`."""

    def tell(self, node: SearchNode) -> None:
        """What another search found, for :meth:`news`."""
        self._news = node

    def news(self) -> SearchNode | None:
        """What was told last, once, where it is cheaper than all that was visited through this view. For searches that
        go on from it without letting go of what they have.
        """
        node, self._news = self._news, None
        return node if node is not None and node.cost < self.best.cost else None

    def check(self) -> None:
        if self._turn is not None:
            self._turn()
        super().check()

    def _visit(self, node: SearchNode) -> None:
        super()._visit(node)
        if node.cost < self.best.cost:
            self.best = node
