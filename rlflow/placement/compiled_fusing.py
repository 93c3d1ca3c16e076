"""The task of fusing by kernels that are really compiled and timed: TorchInductor's, for a torch callable.

A decision is a level of priority for each of Inductor's nodes before fusion, as in :mod:`rlflow.placement.fusing`: of
the pairs that Inductor may fuse it fuses those of the highest level first, and a node of level 0 is never joined to its
readers. Nodes that read the same value are joined by the lower of their levels. What is legal Inductor decides, and
where loops are fused by their outer ones alone, it does that in a later round; so equal levels above 0 are its default.

The seconds of groups are kept in a table. A group is looked up by what it computes, so it is compiled and timed once,
in the first whole that has it, among the kernels that run before and after it there.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlflow.errors import CostError, UsageError
from rlflow.files import ScratchFolder
from rlflow.placement.inductor_scheduling import InductorGraph, NodeGroup, forget_compiled
from rlflow.placement.ordering import checked_levels
from rlflow.placement.task import Evaluation

__all__ = ["CompiledFusingTask", "CompiledWhole", "times_beside"]

#: Runs of a compiled whole before those that are timed.
_WARM = 2
#: glibc gives blocks as large as one that was freed, up to 32 MiB, from its heap, and keeps twice as much there. Before
#: that, each run may have the system hand out and clear its pages anew, or not, as it comes.
_FREED_ONCE = 31 << 20


class CompiledWhole:
    """The whole callable, compiled: called like it, with tensors of the example's shapes, without gradients.

    ``groups``: int32 [n], the group of each node: the number of its first node.
    """

    def __init__(self, graph: InductorGraph, core: Callable[[list[Any]], Any], group: np.ndarray) -> None:
        self._graph, self._core, self.groups = graph, core, group

    def __call__(self, *inputs: Any) -> Any:
        return self._graph.call(self._core, inputs)

    def run(self) -> float:
        """Processor seconds of this thread for one run on the example: the core, without what torch does around it."""
        arguments = list(self._graph.arguments)
        began = time.thread_time()
        self._core(arguments)
        return time.thread_time() - began


class CompiledFusingTask:
    """Groups of a callable's nodes, each run as one kernel of TorchInductor on one thread. The objective is seconds: of
    each group the best of ``runs`` runs, and ``rest``, what a run takes outside of them.

    ``function``: a ``torch.nn.Module`` in evaluation mode, or a function of tensors; ``example``: its tensors, on the
    processor; ``levels``: how many; ``folder``: where Inductor keeps what it compiles (default: a folder of ours, which
    :meth:`close` removes). ``table``: seconds by signature, float; it may be handed from one task to another.
    ``compiled``: groups that had to be compiled for it so far; ``spent``: evaluations.

    Raises RuntimeUnavailable where PyTorch or a compiler is absent, ModelError where torch cannot export the callable,
    UsageError for fewer than 2 levels, fewer than 1 run, or tensors that are none.
    """

    evidence = "measured"

    def __init__(
        self,
        function: Any,
        example: Sequence[Any],
        levels: int = 8,
        *,
        runs: int = 20,
        folder: str | None = None,
        table: dict[str, float] | None = None,
    ) -> None:
        if levels < 2 or runs < 1:
            raise UsageError(f"Fusion needs at least 2 levels of priority and 1 run; got {levels} and {runs}.")
        self.choices, self.runs, self.spent, self.compiled = levels, runs, 0, 0
        self.table: dict[str, float] = {} if table is None else table
        self.rest: float | None = None
        self._plans: dict[bytes, tuple[NodeGroup, ...]] = {}
        scratch: ScratchFolder | None = None
        if folder is None:
            scratch = ScratchFolder("rlflow-fusing-")
            folder = scratch.name
        self._finish = weakref.finalize(self, _removed, scratch)
        try:
            self._graph = InductorGraph(function, example, folder)
        except BaseException:
            self.close()
            raise
        #: The nodes as a policy and a roofline see them.
        self.sketch = self._graph.sketch

    @property
    def nodes(self) -> int:
        """Number of decisions."""
        return len(self._graph.names)

    @property
    def names(self) -> tuple[str, ...]:
        """Inductor's names of the nodes, [n]."""
        return self._graph.names

    def close(self) -> None:
        """Remove the folder, if it is ours, and make torch forget what it keeps there. What is compiled still runs."""
        self._finish()

    def __enter__(self) -> CompiledFusingTask:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()

    def plan(self, decisions: Any) -> tuple[NodeGroup, ...]:
        """The groups of levels int [n], or of Inductor's own choice for ``None``; no code is written for it. Raises
        UsageError for bad levels.
        """
        key = b"" if decisions is None else checked_levels(decisions, self.nodes, self.choices).astype("i4").tobytes()
        if key not in self._plans:
            self._plans[key] = self._graph.fused(None if decisions is None else np.asarray(decisions).tolist())
        return self._plans[key]

    def groups(self, decisions: Any) -> np.ndarray:
        """The group of each node, int32 [n]: the number of its first node. Raises UsageError for bad levels."""
        return _numbered(self.plan(decisions), self.nodes)

    def unknown(self, decisions: Any) -> list[NodeGroup]:
        """The groups that are not in the table: what :meth:`evaluate` would have to compile."""
        return [one for one in self.plan(decisions) if one.signature and one.signature not in self.table]

    def evaluate(self, decisions: Any) -> Evaluation:
        """What levels int [n] are worth: a sum over the table, once all their groups are in it. Raises UsageError for
        bad levels, RuntimeRefused where Inductor cannot compile a group, CostError where its kernels cannot be timed.
        """
        self.spent += 1
        plan = self.plan(decisions)
        if self.rest is None or self.unknown(decisions):
            self._measure(decisions)
        value = float(self.rest or 0.0) + sum(self.table[one.signature] for one in plan if one.signature)
        return Evaluation(value, True, self.evidence, np.zeros(1), np.array([value]))

    def scores(self, decisions: Any) -> np.ndarray:
        """Seconds of many decisions [rows, n], float64 [rows]."""
        return np.array([self.evaluate(row).objective for row in np.asarray(decisions)])

    def whole(self, decisions: Any = None, *, apart: bool = False) -> CompiledWhole:
        """The whole callable, compiled with levels int [n], or with Inductor's own choice for ``None``. Inductor writes
        the loops of all groups into one function of C++, and gives no buffer back within it; ``apart``: a function for
        each group, as for the table. Raises as :meth:`evaluate`.
        """
        levels = None if decisions is None else checked_levels(decisions, self.nodes, self.choices).tolist()
        core, groups = self._graph.compiled(levels, apart=apart)
        return CompiledWhole(self._graph, core, _numbered(groups, self.nodes))

    def _measure(self, decisions: Any) -> None:
        """Compile the whole with these levels, and put those of its groups into the table that are not there."""
        levels = None if decisions is None else np.asarray(decisions).tolist()
        core, groups = self._graph.compiled(levels, apart=True)
        kernels = [one.signature for one in groups if one.signature]
        rows = _kernel_seconds(core, self._graph.arguments, self.runs)
        if rows.shape[1] != len(kernels) + 1:
            raise CostError(
                f"TorchInductor ran {rows.shape[1] - 1} kernels for {len(kernels)} groups, so their times are unknown."
            )
        best = rows[:, :-1].min(axis=0)
        found: dict[str, list[float]] = {}
        for signature, seconds in zip(kernels, best.tolist(), strict=True):
            found.setdefault(signature, []).append(seconds)
        for signature, ones in found.items():
            if signature not in self.table:
                self.table[signature] = float(np.mean(ones))
                self.compiled += 1
        if self.rest is None:
            self.rest = float((rows[:, -1] - rows[:, :-1].sum(axis=1)).min())


def times_beside(wholes: Sequence[CompiledWhole], runs: int) -> np.ndarray:
    """Processor seconds of compiled wholes, float64 [runs, wholes]. In each round all of them run, in an order that is
    drawn anew from a fixed seed: what slows the machine for a while slows all, and none has always the same before it.
    """
    _settle()
    for one in (*wholes,) * _WARM:
        one.run()
    rng, found = np.random.default_rng(0), np.empty((runs, len(wholes)))
    for row in found:
        for at in rng.permutation(len(wholes)).tolist():
            row[at] = wholes[at].run()
    return found


def _removed(scratch: ScratchFolder | None) -> None:
    if scratch is not None:
        forget_compiled()
        scratch.cleanup()


def _settle() -> None:
    import torch

    torch.empty(_FREED_ONCE, dtype=torch.uint8)


def _numbered(groups: Sequence[NodeGroup], nodes: int) -> np.ndarray:
    found = np.empty(nodes, np.int32)
    for group in groups:
        found[list(group.nodes)] = group.nodes[0]
    return found


def _kernel_seconds(core: Any, arguments: Sequence[Any], runs: int) -> np.ndarray:
    """Processor seconds of each kernel in the order of a run, and last of the whole run, float64 [runs, kernels + 1].
    The core's functions of C++ are replaced by ones that look at the clock, while this lasts.
    """
    _settle()
    call = core.current_callable
    names = getattr(call, "__func__", call).__globals__
    kernels = {name: value for name, value in names.items() if name.startswith("cpp_") and callable(value)}
    seen: list[float] = []

    def timed(kernel: Callable[..., Any]) -> Callable[..., None]:
        def run(*given: Any) -> None:
            began = time.thread_time()
            kernel(*given)
            seen.append(time.thread_time() - began)

        return run

    rows = []
    names.update({name: timed(kernel) for name, kernel in kernels.items()})
    try:
        for _ in range(_WARM + runs):
            seen.clear()
            given = list(arguments)
            began = time.thread_time()
            core(given)
            rows.append([*seen, time.thread_time() - began])
    finally:
        names.update(kernels)
    return np.array(rows[_WARM:])
