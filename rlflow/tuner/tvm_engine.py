"""Operators whose programs TVM's MetaSchedule generates (extra ``[tuner]``), built and timed in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlflow.errors import RuntimeCrashed, UsageError
from rlflow.frontends.generated_sites import CONVOLUTION, PRODUCT
from rlflow.registry import not_installed
from rlflow.runtime.process import Channel
from rlflow.tuner import loop_features
from rlflow.tuner.child_time import ChildTime
from rlflow.tuner.engines import INVALID, TunedSubgraph
from rlflow.tuner.space_files import subgraph_of
from rlflow.tuner.spaces import TensorProgram

#: Seconds for one program, and for the sketches of all operators.
_PROGRAM_SECONDS, _OPEN_SECONDS = 60.0, 300.0
#: Operators of a suite, and nodes of models, whose code can run without TVM (:mod:`rlflow.frontends.generated_sites`).
SITES = (CONVOLUTION, PRODUCT)
KINDS = ("gemm", "conv2d", "depthwise", "grouped", *SITES)


@dataclass(frozen=True)
class TvmOperator:
    """An operator of float32 by ``kind`` and ``sizes``. gemm: rows, columns, inner size. The convolutions (NHWC) have
    batch, height, width, channels in, then channels out (not depthwise), window, stride, padding, and dilation and
    groups (grouped only). Of a site: the rank and the shape of its first input, then its own sizes.
    """

    name: str
    kind: str
    sizes: tuple[int, ...]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS or not all(type(one) is int and one >= 0 for one in self.sizes):
            raise UsageError(f"TVM has no operator {self.kind!r} of sizes {self.sizes}; kinds are {', '.join(KINDS)}.")


class _Child(Channel):
    module = "rlflow.tuner.tvm_child"

    def ask(self, method: str, *arguments: object, limit: float) -> object:
        """The answer to a request."""
        return self._ask(method, *arguments, time_limit=limit)

    def each(self, method: str, *arguments: object, limit: float) -> list[tuple[int, float]]:
        """The items of a longer answer; those that came before the process died, where it did."""
        found: list[tuple[int, float]] = []
        try:
            for kind, value in self._exchange(method, arguments, limit):
                if kind == "item":
                    found.append(value)
        except RuntimeCrashed:
            pass
        return found


class TvmEngine:
    """Programs of ``operators``, for one thread of this processor. The same ``seed`` gives the same sketches."""

    def __init__(self, operators: Sequence[TvmOperator], seed: int = 0) -> None:
        reason = unavailable()
        if reason is not None:
            raise UsageError(f"This engine cannot be used here: {reason}.")
        self._operators, self._seed = tuple(operators), seed
        self._child, self._best = _Child([], _OPEN_SECONDS), [INVALID] * len(operators)
        self._time, self._starts = ChildTime(), -1
        self._subgraphs: tuple[TunedSubgraph, ...] = ()
        try:
            self._open()
            found = self._child.ask("describe", limit=_OPEN_SECONDS)
        except BaseException:
            self.close()
            raise
        self.place = "; ".join(f"{name} {value}" for name, value in sorted(dict(found).items()))  # type: ignore[call-overload]

    @property
    def subgraphs(self) -> Sequence[TunedSubgraph]:
        return self._subgraphs

    @property
    def cpu_seconds(self) -> float:
        return self._time.of(self._child.pid)

    def features(self, subgraph: int, programs: Sequence[TensorProgram]) -> np.ndarray:
        return loop_features.features(self._subgraphs[subgraph], programs)

    def measure(self, subgraph: int, programs: Sequence[TensorProgram]) -> list[float]:
        """Seconds of processor time. A program that ends the process, or takes longer than a minute, cannot run."""
        seconds: dict[int, float] = {}
        while len(seconds) < len(programs):
            self._open()
            left = [at for at in range(len(programs)) if at not in seconds]
            plain = [(programs[at].sketch, programs[at].values) for at in left]
            answers = self._child.each("measure", subgraph, plain, self._best[subgraph], limit=_PROGRAM_SECONDS)
            seconds |= {left[at]: took for at, took in answers}
            if len(answers) < len(left):
                seconds[left[len(answers)]] = INVALID
            self._best[subgraph] = min([self._best[subgraph], *seconds.values()])
        return [seconds[at] for at in range(len(programs))]

    def expect(self, subgraph: int, seconds: float) -> None:
        """Something else does the subgraph in so many seconds: what is much slower is not worth several calls."""
        self._best[subgraph] = min(self._best[subgraph], seconds)

    def isa(self) -> str:
        """The instruction set of code that runs without TVM."""
        return str(self._child.ask("isa", limit=_OPEN_SECONDS))

    def write_object(self, subgraph: int, program: TensorProgram, symbol: str, path: str) -> bool:
        """Write a program of a site as an object file with the C function ``symbol``; whether it can be built."""
        try:
            self._open()
            asked = (subgraph, program.sketch, program.values, symbol, path)
            return bool(self._child.ask("write_object", *asked, limit=_PROGRAM_SECONDS))
        except RuntimeCrashed:
            return False

    def close(self) -> None:
        """End the child process."""
        self._time.of(self._child.pid)
        self._child.close()

    def _open(self) -> None:
        """Let a fresh process know the operators."""
        if self._child.pid is not None and self._child.starts == self._starts:
            return
        plain = [(one.kind, one.sizes) for one in self._operators]
        found = self._child.ask("open", plain, self._seed, limit=_OPEN_SECONDS)
        self._starts = self._child.starts
        self._subgraphs = tuple(
            _subgraph(one, flops, sketches)
            for one, (flops, sketches) in zip(self._operators, found, strict=True)  # type: ignore[call-overload]
        )


def _subgraph(operator: TvmOperator, flops: float, sketches: list[dict[str, object]]) -> TunedSubgraph:
    named = [{"name": f"sketch {number}", **one} for number, one in enumerate(sketches)]
    plain = {"name": operator.name, "flops": flops, "weight": operator.weight, "family": operator.kind}
    return subgraph_of({**plain, "sizes": list(operator.sizes), "sketches": named})


def unavailable() -> str | None:
    """``None``, or why TVM cannot be used here."""
    return not_installed("TVM", "tvm", "[tuner]")
