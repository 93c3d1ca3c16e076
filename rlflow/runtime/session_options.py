"""How models are opened: the runtime, its provider, threads, level and precision, and the clock that prices them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rlflow.errors import UsageError
from rlflow.runtime.base import CPU_PROVIDER, runtime
from rlflow.runtime.messages import ModelIO

PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
LEVELS = ("disable", "basic", "extended", "layout", "all")
#: What models are deployed in unless the user says something else, and what others are compared with.
DEFAULT_RUNTIME = "onnxruntime"
#: More than any machine has; a runtime takes 32 bits.
_MOST_THREADS = 4096
CLOCKS = ("auto", "wall", "cpu")
#: The entry of a session's configuration that names a library of generated code, for the kernels' library to load.
GENERATED_ENTRY = "rlflow.kernels.generated"


@dataclass(frozen=True)
class RuntimeOptions:
    """How sessions are opened and which clock prices them.

    ``runtime`` is one of :data:`rlflow.runtime.RUNTIMES`; ``provider`` an execution provider, where it has several;
    ``threads`` the number of intra-operator threads; ``level`` how much the runtime may optimise (one of ``LEVELS``).

    ``clock`` says what a duration means. ``wall`` is elapsed time. ``cpu`` is processor time of the worker. ``auto``
    takes processor time where a run uses exactly one thread of the CPU provider (there it *is* the latency on a free
    core, and other programs on the machine cannot add to it), and elapsed time otherwise.

    ``library``: the path of a library of operators that ONNX Runtime loads first. ``generated``: the path of a library
    of code that those may call.

    ``precision`` is how the runtime computes with float32 tensors (one of its ``precisions``).
    """

    provider: str = CPU_PROVIDER
    threads: int = 1
    level: str = "all"
    clock: str = "auto"
    runtime: str = DEFAULT_RUNTIME
    precision: str = "float32"
    library: str | None = None
    generated: str | None = None

    def __post_init__(self) -> None:
        place = runtime(self.runtime)
        if not place.has_providers and self.provider != CPU_PROVIDER:
            raise UsageError(
                f"{place.title} has no execution providers; {self.runtime} knows no {self.provider}. "
                "Give either a provider or another runtime."
            )
        if self.precision not in PRECISIONS:
            raise UsageError(f"The precision {self.precision!r} is unknown; choose one of {', '.join(PRECISIONS)}.")
        if self.precision not in place.precisions:
            raise UsageError(
                f"{place.title} does not compute with {self.precision}; it knows {', '.join(place.precisions)}."
            )
        if self.level not in LEVELS:
            raise UsageError(f"The optimisation level {self.level!r} is unknown; choose one of {', '.join(LEVELS)}.")
        if self.clock not in CLOCKS:
            raise UsageError(f"The clock {self.clock!r} is unknown; choose one of {', '.join(CLOCKS)}.")
        if not isinstance(self.threads, int) or not 1 <= self.threads <= _MOST_THREADS:
            raise UsageError(
                f"The number of threads must be a whole number from 1 to {_MOST_THREADS}, not {self.threads!r}."
            )

    @property
    def effective_clock(self) -> str:
        """``wall`` or ``cpu``: what ``clock`` means for these options on this machine."""
        if self.clock != "auto":
            return self.clock
        fine = time.get_clock_info("process_time").resolution <= 1e-6
        on_cpu = self.provider == CPU_PROVIDER and runtime(self.runtime).on_processor
        return "cpu" if fine and self.threads == 1 and on_cpu else "wall"


@dataclass(frozen=True)
class Handle:
    """A model loaded in a worker; it outlives a crash of the process, being loaded again on next use."""

    key: int
    io: ModelIO
    options: RuntimeOptions
    load_seconds: float = field(compare=False, default=0.0)


def unavailable_reason(name: str = DEFAULT_RUNTIME) -> str | None:
    """Why a runtime cannot be used here, or ``None``; opens nothing."""
    return runtime(name).missing()


def provider_name(text: str) -> str:
    """The full name of an execution provider: ``cuda`` and ``CUDAExecutionProvider`` mean the same.

    Raises :class:`UsageError` for what is no name.
    """
    if not isinstance(text, str):
        raise UsageError(f"The provider is {text!r}; expected the name of one, such as 'cuda'.")
    if text.endswith("ExecutionProvider"):
        return text
    known = {"cpu": "CPU", "cuda": "CUDA", "tensorrt": "Tensorrt", "dml": "Dml", "rocm": "ROCM", "xnnpack": "Xnnpack",
             "openvino": "OpenVINO", "coreml": "CoreML", "qnn": "QNN", "dnnl": "Dnnl", "acl": "ACL",
             "migraphx": "MIGraphX", "webgpu": "WebGpu"}  # fmt: skip
    return f"{known.get(text.lower(), text)}ExecutionProvider"
