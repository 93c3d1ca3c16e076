"""TVM in a process of its own: sketches of operators, and programs that are built and timed. The one file that opens
TVM; a program that crashes takes nothing else with it.

Times are processor time of one thread, the least of several calls. Each call has other weights than the last one, as in
a network: a cache that holds them flatters a kernel by a fifth. A program that is much slower than the best one is not
run again.
"""

from __future__ import annotations

import math
import os
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlflow.runtime.worker import serve

#: Arrays of all copies of the arguments together have about so many bytes, in at most so many copies.
_SPREAD_BYTES, _MOST_COPIES = 48 << 20, 24
#: Calls go on for so many seconds of processor time, and so many calls at least.
_TIMED_SECONDS, _LEAST_CALLS = 0.02, 4
#: A first call that takes this many times the best time is not repeated.
_HOPELESS = 4.0


def main() -> int:
    """Serve the pipe on the standard streams; returns the exit status."""
    os.environ["TVM_NUM_THREADS"] = "1"
    return serve("TVM", TvmService)


class TvmService:
    """Answers what :class:`rlflow.tuner.tvm_engine.TvmEngine` asks."""

    title = "TVM"

    def __init__(self, answer: Callable[[Any], None]) -> None:
        self._answer = answer
        self._spaces: list[OperatorPrograms] = []

    def start(self) -> None:
        """Open TVM; raises ImportError where it is absent."""
        opened()

    def describe(self) -> dict[str, str]:
        """Version and target."""
        tvm = opened()
        return {"engine": "tvm", "version": tvm.__version__, "cpu": str(tvm.target.codegen.llvm_get_system_cpu())}

    def open(self, operators: Sequence[tuple[str, tuple[int, ...]]], seed: int) -> list[tuple[float, list[Any]]]:
        """Operations and sketches of operators, as plain data; they are numbered in this order from here on."""
        self._spaces = [OperatorPrograms(kind, sizes, seed) for kind, sizes in operators]
        return [(one.flops, one.sketches()) for one in self._spaces]

    def isa(self) -> str:
        """The instruction set of code that runs without TVM."""
        opened()
        from rlflow.tuner import tvm_sites

        return tvm_sites.isa_here()[0]

    def write_object(self, number: int, sketch: int, values: tuple[int, ...], symbol: str, path: str) -> bool:
        """As :meth:`OperatorPrograms.write_object`, of an operator that is a site's."""
        return self._spaces[number].write_object(sketch, values, symbol, path)

    def measure(self, number: int, programs: Sequence[tuple[int, tuple[int, ...]]], best: float) -> None:
        """Times programs of an operator in turn; each answer is a program's seconds, infinite where it cannot run."""
        operator = self._spaces[number]
        for at, (sketch, values) in enumerate(programs):
            seconds = operator.seconds(sketch, values, best)
            best = min(best, seconds)
            self._answer(("item", (at, seconds)))


def opened() -> Any:
    """TVM, without the tensor intrinsics of other processors, whose import takes half a minute."""
    import tvm

    name = "tvm.s_tir.tensor_intrin"
    if name not in sys.modules:
        import tvm.s_tir

        package = types.ModuleType(name)
        package.__path__ = [os.path.join(os.path.dirname(tvm.s_tir.__file__), "tensor_intrin")]
        sys.modules[name] = package
        tvm.s_tir.tensor_intrin = package
        import tvm.s_tir.tensor_intrin.x86
    return tvm


#: Operators by kind: the name of TVM's definition, as in the suite that Ansor was evaluated with.
DEFINITIONS: Mapping[str, str] = {
    "gemm": "matmul",
    "conv2d": "conv2d_nhwc",
    "depthwise": "depthwise_conv2d_nhwc",
    "grouped": "conv2d_nhwc",
}


class OperatorPrograms:
    """One operator: its ``module`` and ``target``, its sketches, and the building and timing of their programs."""

    def __init__(self, kind: str, sizes: tuple[int, ...], seed: int) -> None:
        tvm = opened()
        from tvm import te
        from tvm.s_tir import meta_schedule
        from tvm.s_tir.meta_schedule.testing import te_workload

        from rlflow.tuner import tvm_sites

        self._for_site = kind not in DEFINITIONS
        if self._for_site:
            self.target, tensors = tvm_sites.isa_here()[1], tvm_sites.tensors(kind, sizes)
        else:
            self.target = tvm_sites.target_here()
            tensors = getattr(te_workload, DEFINITIONS[kind])(*sizes)
        function = te.create_prim_func(tensors)
        self._context = meta_schedule.TuneContext(
            mod=tvm.IRModule({"main": function}), target=self.target, space_generator="post-order-apply",
            num_threads=1, rand_state=1 + seed,
        )  # fmt: skip
        self.module = self._context.mod
        self._traces = [one.trace for one in self._context.generate_design_space()]
        self.flops = float(tvm.s_tir.analysis.estimate_tir_flops(self.module))
        self._arguments = _arguments([[int(size) for size in one.shape] for one in tensors], seed)

    def sketches(self) -> list[dict[str, Any]]:
        """What each sketch leaves open, in the order of :meth:`_decisions`: the fields of ``Tile`` and ``Steps``."""
        return [
            {
                "tiles": [_tile(at, inst, trace.decisions[inst]) for at, inst in _sampled(trace, tiles=True)],
                "steps": [_steps(at, inst) for at, inst in _sampled(trace, tiles=False)],
            }
            for trace in self._traces
        ]

    def seconds(self, sketch: int, values: tuple[int, ...], best: float) -> float:
        """Of the program, infinite where it cannot be built."""
        schedule = self._scheduled(sketch, values)
        return math.inf if schedule is None else self.seconds_of(schedule.mod, best)

    def seconds_of(self, module: Any, best: float) -> float:
        """Of a scheduled ``module``, infinite where it cannot be built; ``best``: of those before it."""
        try:
            return self.call_seconds(self.compiled(module), best)
        except Exception:  # noqa: BLE001 - TVM raises a dozen unrelated classes
            return math.inf

    def built(self, sketch: int, values: tuple[int, ...]) -> Any:
        """The program as a function, or ``None`` where TVM refuses it."""
        schedule = self._scheduled(sketch, values)
        return None if schedule is None else self.compiled(schedule.mod)

    def compiled(self, module: Any) -> Any:
        """A scheduled ``module`` as a function of TVM's tensors."""
        return opened().compile(module, target=self.target)["main"]

    def write_object(self, sketch: int, values: tuple[int, ...], symbol: str, path: str) -> bool:
        """Write the program of a site as an object file with the C function ``symbol``; whether it can be built."""
        from rlflow.tuner import tvm_sites

        schedule = self._scheduled(sketch, values)
        if schedule is None:
            return False
        try:
            tvm_sites.write_object(schedule.mod, self.target, symbol, path)
        except Exception:  # noqa: BLE001 - TVM raises a dozen unrelated classes
            return False
        return True

    def _scheduled(self, sketch: int, values: tuple[int, ...]) -> Any:
        """The schedule of the program, or ``None`` where TVM refuses it."""
        tvm = opened()
        trace = self._traces[sketch]
        schedule = tvm.s_tir.Schedule(self.module, debug_mask=0, error_render_level="none")
        try:
            changed = tvm.s_tir.schedule.Trace(trace.insts, _decisions(trace, values))
            changed.apply_to_schedule(schedule, remove_postproc=True)
            if self._for_site:  # it runs where TVM's threads are not there
                schedule.unannotate(schedule.get_sblock("root"), "meta_schedule.parallel")
            schedule.enter_postproc()
            good = all(one.apply(schedule) for one in self._context.space_generator.postprocs)
        except Exception:  # noqa: BLE001 - TVM raises a dozen unrelated classes
            return None
        return schedule if good else None

    def call_seconds(self, function: Any, best: float = math.inf) -> float:
        """The least of several calls; of few where they take much longer than ``best``."""
        took: list[float] = []
        spent = 0.0
        while len(took) < _LEAST_CALLS or spent < _TIMED_SECONDS:
            arguments = self._arguments[len(took) % len(self._arguments)]
            began = time.thread_time()
            function(*arguments)
            took.append(time.thread_time() - began)
            spent += took[-1]
            if took[-1] > _HOPELESS * best and (len(took) > 1 or took[-1] > 0.1):
                break
        return max(min(took), 1e-9)


def _sampled(trace: Any, tiles: bool) -> list[tuple[int, Any]]:
    """The instructions of a trace that decide something, numbered: splits of loops, or everything else."""
    deciding = [inst for inst in trace.insts if inst in trace.decisions]
    return [(at, inst) for at, inst in enumerate(deciding) if (inst.kind.name == "SamplePerfectTile") == tiles]


def _tile(at: int, inst: Any, decision: Any) -> dict[str, Any]:
    parts = [int(one) for one in decision]
    count, innermost = (int(one) for one in inst.attrs)
    # A tiling "SSRSRS" has four parts for a loop over outputs and two for one that sums.
    sizes = {"extent": math.prod(parts), "parts": count, "innermost": innermost}
    return {"name": f"loop{at}", **sizes, "reduction": count == 2}


def _steps(at: int, inst: Any) -> dict[str, Any]:
    if inst.kind.name == "SampleCategorical":
        return {"name": f"unroll{at}", "group": "unroll", "values": [int(one) for one in inst.attrs[0]]}
    return {"name": f"at{at}", "group": "compute_at", "values": list(range(-2, _MOST_DEPTH))}


#: Loops that a block may be computed at; what is deeper than a program's loops cannot be built.
_MOST_DEPTH = 8


def _decisions(trace: Any, values: tuple[int, ...]) -> dict[Any, Any]:
    """The decisions that the row of a program stands for."""
    found: dict[Any, Any] = {}
    begin = 0
    for _, inst in _sampled(trace, tiles=True):
        parts = int(inst.attrs[0])
        found[inst] = list(values[begin : begin + parts])
        begin += parts
    for (_, inst), value in zip(_sampled(trace, tiles=False), values[begin:], strict=True):
        found[inst] = value if inst.kind.name == "SampleCategorical" else value - 2
    return found


def _arguments(shapes: Sequence[Sequence[int]], seed: int) -> list[list[Any]]:
    """Copies of random arguments of these shapes, as many as fill the caches."""
    tvm = opened()
    rng = np.random.default_rng(seed)
    size = 4 * sum(math.prod(shape) for shape in shapes)
    copies = max(2, min(_MOST_COPIES, _SPREAD_BYTES // max(1, size)))
    return [
        [tvm.runtime.tensor(rng.standard_normal(shape, dtype=np.float32)) for shape in shapes] for _ in range(copies)
    ]
