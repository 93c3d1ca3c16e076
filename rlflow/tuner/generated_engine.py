"""Programs that TVM generates, beside ONNX Runtime's own kernels and ours: more sketches at the nodes where they may
win.

A program is built and timed by TVM first, with other weights each call. Only one that could be fast goes into a library
and is timed inside the model, as everything else is; so what is compared was measured in the same company.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlflow.errors import CostError, OutputError, UsageError
from rlflow.files import ScratchFolder
from rlflow.frontends.generated_sites import FUNCTION, tensor_shapes
from rlflow.kernels.generated_code import CodeChoice, GeneratedCode
from rlflow.tuner import loop_features, native_library, tvm_engine
from rlflow.tuner.engines import INVALID, TunedSubgraph
from rlflow.tuner.kernel_engine import KernelEngine, KernelSites, site_seconds
from rlflow.tuner.native_library import CompiledFunction
from rlflow.tuner.spaces import Sketch, Space, TensorProgram
from rlflow.tuner.tvm_engine import TvmEngine, TvmOperator

if TYPE_CHECKING:
    from rlflow.frontends.blocked import BlockedGraph
    from rlflow.frontends.kernel_sites import Site
    from rlflow.runtime import NodeTime, Worker

__all__ = ["GENERATED", "ChosenCode", "CodeSite", "GeneratedEngine", "unavailable"]

#: The name of every sketch of generated code.
GENERATED = "generated"
#: What takes so many times the runtime's own time when TVM times it is not timed in the model.
_HOPELESS = 1.3


@dataclass(frozen=True)
class CodeSite:
    """``number``: of the operator in TVM's engine. ``shapes``: of the inputs and the output."""

    number: int
    site: Site
    shapes: Sequence[tuple[int, ...]]


class ChosenCode(NamedTuple):
    """A program for a group. ``ratio``: the runtime's own time over its time."""

    subgraph: int
    program: TensorProgram
    ratio: float


def unavailable() -> str | None:
    """``None``, or why no code can be generated here."""
    return tvm_engine.unavailable() or native_library.unavailable()


class GeneratedEngine(KernelEngine):
    """As :class:`KernelEngine`. Its groups are also those of nodes that only generated code could do."""

    def __init__(
        self, graph: BlockedGraph, worker: Worker, feeds: Mapping[str, Any], like: KernelSites | None = None
    ) -> None:
        reason = unavailable()
        if reason is not None:
            raise UsageError(f"Code cannot be generated here: {reason}.")
        self._code = {site.name: site for site in graph.code_sites()}
        self._own: dict[str, NodeTime] = {}
        super().__init__(graph, worker, feeds, like)
        self._found_code = self._code_sites()
        if not self._found_code:
            raise CostError("The model has no node that generated code could do; tune it without.")
        self._folder = ScratchFolder("rlflow-generated-")
        self._trials = Path(self._folder.name)
        self._tried: dict[tuple[int, TensorProgram], Path | float] = {}
        try:
            self._tvm = TvmEngine([self._operator(one) for one in self._found_code.values()])
        except BaseException:
            self._folder.cleanup()
            raise
        self.isa = self._tvm.isa()
        for group, one in self._found_code.items():
            self._tvm.expect(one.number, self._own_seconds(group) / len(self.groups[group]))

    @property
    def place(self) -> str:
        """As the base's, and TVM's."""
        return f"{super().place}; with code of {self._tvm.place} for {self.isa}"

    @property
    def cpu_seconds(self) -> float:
        """What both have spent."""
        return super().cpu_seconds + self._tvm.cpu_seconds

    def attributes(self, subgraph: int, program: TensorProgram) -> tuple[str, dict[str, int]] | None:
        """As the base's; generated code has no tuning but its program."""
        if self.is_generated(subgraph, program):
            return GENERATED, {}
        return super().attributes(subgraph, program)

    def features(self, subgraph: int, programs: Sequence[TensorProgram]) -> np.ndarray:
        """As the base's; and of generated code, what its loops do."""
        plain, code = super().features(subgraph, programs), self._found_code.get(subgraph)
        if code is None:
            return plain
        operator = self._operator(code)
        touched = loop_features.touched_by(operator.kind, operator.sizes)
        if touched is None:
            return plain
        return np.concatenate([plain, loop_features.figures(self.subgraphs[subgraph].space, programs, touched)], axis=1)

    def is_generated(self, subgraph: int, program: TensorProgram) -> bool:
        """Whether TVM makes this program."""
        return self.subgraphs[subgraph].space.sketches[program.sketch].name == GENERATED

    def measure(self, subgraph: int, programs: Sequence[TensorProgram]) -> list[float]:
        found = []
        for one in programs:
            if self.is_generated(subgraph, one):
                found.append(self._of_code(subgraph, one))
            else:
                found += super().measure(subgraph, [one])
        return found

    def write_library(self, path: Path, chosen: Sequence[ChosenCode]) -> GeneratedCode:
        """Link programs of groups, and describe the library for a plan. Raises OutputError."""
        functions, choices = [], list[CodeChoice]()
        for number, one in enumerate(chosen):
            made = self._compiled(one.subgraph, one.program, f"rlflow_function_{number}")
            if made is None:
                raise OutputError(f"{path} cannot be made: TVM refuses what it built before.")
            functions.append(made)
            sites = (self._code[site.name] for site in self.groups[one.subgraph])
            choices += [CodeChoice(site.name, site.kind, tuple(site.sizes), number, one.ratio) for site in sites]
        native_library.write_library(path, functions, self.isa)
        shapes = tuple(tuple(map(tuple, one.shapes)) for one in functions)
        return GeneratedCode(hashlib.sha256(path.read_bytes()).hexdigest(), self.isa, shapes, tuple(choices))

    def close(self) -> None:
        """End both processes."""
        super().close()
        self._tvm.close()
        self._folder.cleanup()

    # --- sites ------------------------------------------------------------------------------------------------------

    def _worth(self, own: Mapping[str, NodeTime]) -> list[Site]:
        self._own = dict(own)
        mine = {site.name: site for site in super()._worth(own)}
        more = {name: site for name, site in self._code.items() if name in own and name not in mine}
        return [*mine.values(), *(site for name, site in more.items() if self._shapes(name, own[name].shape))]

    def _alike(self, site: Site) -> tuple[object, ...]:
        code = self._code.get(site.name)
        return (*super()._alike(site), None if code is None else code.sizes)

    def _shapes(self, name: str, first: Sequence[int] | None) -> list[tuple[int, ...]] | None:
        site = self._code.get(name)
        return None if site is None or first is None else tensor_shapes(site, first)

    def _code_sites(self) -> dict[int, CodeSite]:
        found: dict[int, CodeSite] = {}
        for number, (group, shape) in enumerate(zip(self.groups, self.sites.shapes, strict=True)):
            shapes = self._shapes(group[0].name, shape)
            if shapes is not None:
                found[number] = CodeSite(len(found), self._code[group[0].name], shapes)
        return found

    def _operator(self, one: CodeSite) -> TvmOperator:
        first = one.shapes[0]
        return TvmOperator(one.site.name[:100], one.site.kind, (len(first), *first, *one.site.sizes))

    def _subgraph(self, group: Sequence[Site], shape: tuple[int, ...] | None) -> TunedSubgraph:
        plain = super()._subgraph(group, shape)
        number = next(at for at, one in enumerate(self.groups) if one is group)
        code = self._found_code.get(number)
        if code is None:
            return plain
        made = self._tvm.subgraphs[code.number]
        sketches = [Sketch(GENERATED, one.tiles, one.steps) for one in made.space.sketches]
        space = Space((*plain.space.sketches, *sketches))
        return replace(plain, space=space, flops=made.flops * len(group), family=f"{plain.family} {code.site.sizes}")

    # --- timing -----------------------------------------------------------------------------------------------------

    def _own_seconds(self, subgraph: int) -> float:
        """What the runtime's own kernels take at the sites of a group."""
        return sum(site_seconds(site, self._own) for site in self.groups[subgraph])

    def _of_code(self, subgraph: int, program: TensorProgram) -> float:
        key = subgraph, program
        if key not in self._tried:
            self._tried[key] = self._library_or_seconds(subgraph, program)
        found = self._tried[key]
        if isinstance(found, float):
            return found
        before = self._worker.options
        self._worker.options = replace(before, generated=str(found))
        try:
            return self.timed(self.groups[subgraph], {FUNCTION: 0})
        finally:
            self._worker.options = before

    def _library_or_seconds(self, subgraph: int, program: TensorProgram) -> Path | float:
        """A library of the program, or what it takes where that is too long to be tried further."""
        group, number = self.groups[subgraph], self._found_code[subgraph].number
        alone = self._tvm.measure(number, [self._inner(subgraph, program)])[0] * len(group)
        if not math.isfinite(alone) or (self._own and alone > _HOPELESS * self._own_seconds(subgraph)):
            return alone
        made = self._compiled(subgraph, program, "rlflow_function_0")
        if made is None:
            return INVALID
        path = self._trials / f"{len(self._tried)}.so"
        native_library.write_library(path, [made], self.isa)
        return path

    def _inner(self, subgraph: int, program: TensorProgram) -> TensorProgram:
        """The program as TVM's engine numbers it."""
        names = [one.name for one in self.subgraphs[subgraph].space.sketches]
        return TensorProgram(program.sketch - names.index(GENERATED), program.values)

    def _compiled(self, subgraph: int, program: TensorProgram, symbol: str) -> CompiledFunction | None:
        code, path = self._found_code[subgraph], self._trials / f"{symbol}.o"
        if not self._tvm.write_object(code.number, self._inner(subgraph, program), symbol, str(path)):
            return None
        return CompiledFunction(symbol, path, code.shapes)
