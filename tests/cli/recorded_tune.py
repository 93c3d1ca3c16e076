"""The command line in a process of its own, where `rlflow tune` measures on the recorded environment: times that no
clock made, so that two tunings can be compared. Ctrl-C comes by itself.

    python tests/cli/recorded_tune.py AFTER PRESSES tune MODEL -o FOLDER ...

AFTER: programs that are measured before it comes; PRESSES: how often it comes then.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

import numpy as np

from rlflow import tuned
from rlflow.cli import main
from rlflow.tuner import KernelEngine, RecordedEngine, TensorProgram
from rlflow.tuner.warm_starts import SHIPPED

NO_PLAN = "There is no plan: nobody asked for one."


class Recorded(RecordedEngine):
    """Two shapes of the table that rlflow ships."""

    def __init__(self, after: int = 0, presses: int = 0) -> None:
        some = RecordedEngine.read(SHIPPED).only(0, 3)
        times = [np.array(list(one.values())) for one in some.seconds]
        super().__init__(some.place, some.subgraphs, times, some.trial_seconds)
        self._left, self._presses = after, presses

    def measure(self, subgraph: int, programs: Sequence[TensorProgram]) -> list[float]:
        self._left -= len(programs)
        if self._left <= 0:
            presses, self._presses = self._presses, 0
            for _ in range(presses):
                os.kill(os.getpid(), signal.SIGINT)
        return super().measure(subgraph, programs)


def run(after: int, presses: int, arguments: list[str]) -> None:
    """What the table says is measured, and nothing is raced."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    KernelEngine.of = classmethod(lambda *_, **__: Recorded(after, presses))
    tuned._Ends.planned = lambda _: ([], None, None, NO_PLAN)
    main(arguments)


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
