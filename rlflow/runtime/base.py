"""What a runtime is, and which there are. ``docs/add-a-runtime.md`` shows a whole one."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from rlflow.errors import RuntimeRefused
from rlflow.registry import Registry, not_installed
from rlflow.runtime import loops

if TYPE_CHECKING:
    from rlflow.runtime.messages import Measurement, ModelIO, NodeTime, TimingPlan
    from rlflow.runtime.residence import MemoryTrace
    from rlflow.runtime.session_options import RuntimeOptions

#: ONNX Runtime's own processor kernels; what a runtime without execution providers is asked for, too.
CPU_PROVIDER = "CPUExecutionProvider"


class Session(Protocol):
    """An open model, in any runtime. ``load_seconds``: what opening it took."""

    options: RuntimeOptions
    io: ModelIO
    load_seconds: float

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Outputs by name (all, where none are named), as numpy arrays."""
        ...

    def runner(self, feeds: Mapping[str, Any]) -> Callable[[], None]:
        """A call that runs the model once on these inputs and waits, with as little around it as there can be."""
        ...


class Runtime:
    """What executes models: a class in a file of its own, and one entry in :data:`RUNTIMES` or of the entry points
    ``rlflow.runtimes``.

    It says what it can do in the attributes below, and does it in the methods, which are called in a worker process
    that may die without harm. Its file imports the library where a model is opened: listing runtimes opens none.
    """

    name: ClassVar[str]
    #: How sentences call it.
    title: ClassVar[str]
    #: The module that has to be installed, and what pip installs for it (``[extra]`` of ours, or a package).
    module: ClassVar[str | None] = None
    install: ClassVar[str] = ""
    #: Whether the worker's own threads do the work, so that one thread's processor time is the latency on a free core.
    on_processor: ClassVar[bool] = True
    #: Whether the number of threads can be chosen.
    sets_threads: ClassVar[bool] = True
    #: Whether it has execution providers to choose from.
    has_providers: ClassVar[bool] = False
    #: How it can compute with float32 tensors.
    precisions: ClassVar[tuple[str, ...]] = ("float32",)
    #: Whether regions can be timed alone in it: then there is a cost model of its name.
    prices_regions: ClassVar[bool] = True
    #: Whether :meth:`optimized` hands out the graph that it executes.
    shows_graph: ClassVar[bool] = False
    #: Whether it maps weights from files, which rewrites of a model can share.
    maps_weights: ClassVar[bool] = False
    #: Its place among those that ``--runtime gpu`` tries, the lowest first, and the provider that is asked for then.
    gpu_rank: ClassVar[int | None] = None
    gpu_provider: ClassVar[str | None] = None

    def missing(self) -> str | None:
        """Why it cannot be used in this Python, in a sentence, or ``None``; opens nothing."""
        return None if self.module is None else not_installed(self.title, self.module, self.install)

    def fusion_table(self, provider: str) -> str:
        """Name of the core's table of what it fuses."""
        return "generic"

    # --- in the worker process ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the library, before the first request; an :class:`ImportError` says why the runtime cannot be used."""

    def open(self, source: bytes | str, options: RuntimeOptions) -> Session:
        """A session on serialized ONNX or on a file. Raises :class:`RuntimeRefused` with what it says."""
        raise NotImplementedError

    def describe(self, provider: str) -> dict[str, Any]:
        """Identity of runtime and device, as strings that can key a price; see :meth:`identity`."""
        raise NotImplementedError

    def interface(self, source: bytes | str, options: RuntimeOptions) -> ModelIO:
        """Inputs and outputs of a model, quicker than by opening it where that is possible."""
        return self.open(source, options).io

    def measure(
        self,
        source: bytes,
        specs: Mapping[str, Any] | None,
        options: RuntimeOptions,
        timing: TimingPlan,
        reference: Callable[[], None] | None = None,
    ) -> Measurement:
        """Median and interquartile range of one small model, by the clock of ``options``; see :func:`loops.measure`."""
        return loops.measure(self.open, source, specs, options, timing, reference)

    def profile(
        self, source: bytes | str, options: RuntimeOptions, feeds: Mapping[str, Any], runs: int
    ) -> list[NodeTime]:
        """Time of each node or step, in the order of execution; refused where there is no profiler."""
        raise RuntimeRefused(f"{self.title} does not profile nodes.")

    def optimized(self, source: bytes | str, options: RuntimeOptions) -> bytes:
        """The graph that it executes, as serialized ONNX; refused where it has no such form."""
        raise RuntimeRefused(f"{self.title} does not hand out what it executes as ONNX.")

    def write_optimized(self, source: bytes | str, options: RuntimeOptions, path: str) -> None:
        """The same in a file, beside ``source``: weights that are in another file there may stay where they are."""
        Path(path).write_bytes(self.optimized(source, options))

    def memory_trace(self, source: bytes | str, options: RuntimeOptions, feeds: Mapping[str, Any]) -> MemoryTrace:
        """What each node of the graph that it executes takes in a run; refused where it does not say."""
        raise RuntimeRefused(f"{self.title} does not say what its nodes take of memory.")

    def identity(
        self,
        version: str,
        provider: str,
        *,
        device: str | None = None,
        providers: Sequence[str] = (),
        clock_state: str | None = None,
        threads: int | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """What :meth:`describe` returns: ``device`` is this processor unless another is named."""
        affinity = getattr(os, "sched_getaffinity", None)
        cpu = loops.cpu_model()
        return {
            "runtime": self.name,
            "version": version,
            "provider": provider,
            "providers": list(providers) or [provider],
            "device": device or cpu,
            "cpu": cpu,
            "threads_available": threads or (len(affinity(0)) if affinity else os.cpu_count() or 1),
            "clock_state": loops.clock_state() if clock_state is None else clock_state,
            "platform": f"{platform.system()} {platform.machine()}",
            **more,
        }


def _accept(name: str, kind: Any) -> None:
    if not (isinstance(kind, type) and issubclass(kind, Runtime)):
        raise TypeError(f"{kind!r} is not a class of runtimes (rlflow.runtime.Runtime)")
    if getattr(kind, "name", None) != name:
        raise TypeError(f"it calls itself {getattr(kind, 'name', None)!r}, expected {name!r}")


#: All runtimes: ours, and those of other distributions.
RUNTIMES: Registry[type[Runtime]] = Registry(
    "runtime",
    group="rlflow.runtimes",
    places={
        "onnxruntime": "rlflow.runtime.onnxruntime:OnnxRuntime",
        "onnxruntime+kernels": "rlflow.kernels.kernel_runtime:OnnxRuntimeWithKernels",
        "openvino": "rlflow.runtime.openvino:OpenVino",
        "cudnn": "rlflow.runtime.cuda:Cudnn",
        "torch": "rlflow.runtime.torch_cuda:TorchCuda",
    },
    capabilities={
        "on_processor": True,
        "sets_threads": True,
        "has_providers": False,
        "precisions": ("float32",),
        "prices_regions": True,
        "shows_graph": False,
        "maps_weights": False,
        "gpu_rank": None,
    },
    accept=_accept,
)


def runtime(name: str) -> Runtime:
    """The runtime of that name; raises :class:`~rlflow.errors.UsageError` where there is none."""
    return RUNTIMES.get(name)()
