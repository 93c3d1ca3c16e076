"""Times whole graphs against the one they come from, in the deployment runtime."""

from __future__ import annotations

from typing import Any

from rlflow.price.timing import hodges_lehmann, log_ratios
from rlflow.runtime import RuntimeOptions, Worker


class EndToEndTimer:
    """Exports graphs of one imported model and times them beside its starting graph, round by round.

    ``imported``: what :func:`rlflow.frontends.load_model` returned, weights included. ``rounds``: pairs of runs a
    comparison; more make the interval narrower. ``seconds``: most time a comparison takes.
    """

    def __init__(self, imported: Any, threads: int = 1, rounds: int = 15, seconds: float = 2.0, seed: int = 0) -> None:
        self.imported, self.rounds, self.seconds, self.seed = imported, rounds, seconds, seed
        self._worker = Worker(RuntimeOptions(threads=threads))
        self._start: Any = None
        self._feeds: Any = None

    def gain(self, graph: Any) -> tuple[float, float]:
        """``log(time of the starting graph / time of graph)``, and the lower end of its 95 % interval.

        Raises :class:`rlflow.errors.RuntimeRefused` where the runtime will not run the graph.
        """
        self._open()
        handle = self._worker.load(self._bytes(graph))
        try:
            samples = self._worker.time_interleaved(
                [self._start, handle], self._feeds, rounds=self.rounds, seconds=self.seconds, min_rounds=6,
                seed=self.seed,
            )  # fmt: skip
        finally:
            self._worker.unload(handle)
        wall = samples.wall_ms
        found = hodges_lehmann(log_ratios(wall[:, 0], wall[:, 1]))
        return found.value, found.low

    def close(self) -> None:
        """Ends the runtime's process."""
        self._worker.close()

    def _open(self) -> None:
        if self._start is not None:
            return
        from rlflow.equivalence import make_inputs
        from rlflow.graph.ranges import input_ranges

        self._start = self._worker.load(self._bytes(self.imported.graph))
        infos = self._worker.inspect(self._start).inputs
        names = {info.name for info in infos}
        ranges = {name: pair for name, pair in input_ranges(self.imported.graph).items() if name in names}
        open_dims = {dim: 1 for info in infos for dim in info.shape if isinstance(dim, str)}
        self._feeds = make_inputs(infos, self.seed, ranges, None, open_dims)

    def _bytes(self, graph: Any) -> bytes:
        from rlflow.frontends import save_model

        return bytes(save_model(self.imported, graph).SerializeToString(deterministic=True))
