"""What the worker and its clients agree on: session options, the shape of a model's interface, input specifications
and results.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rlflow.errors import UsageError
from rlflow.runtime.base import CPU_PROVIDER, runtime

PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
LEVELS = ("disable", "basic", "extended", "layout", "all")
#: What models are deployed in unless the user says something else, and what others are compared with.
DEFAULT_RUNTIME = "onnxruntime"
CLOCKS = ("auto", "wall", "cpu")

#: A model as this package takes it: serialized ONNX, or the path of a file (needed for external data).
ModelSource = bytes | str | os.PathLike[str]


@dataclass(frozen=True)
class RuntimeOptions:
    """How sessions are opened and which clock prices them.

    ``runtime`` is one of :data:`rlflow.runtime.RUNTIMES`; ``provider`` an execution provider, where it has several;
    ``threads`` the number of intra-operator threads; ``level`` how much the runtime may optimise (one of ``LEVELS``).

    ``clock`` says what a duration means. ``wall`` is elapsed time. ``cpu`` is processor time of the worker. ``auto``
    takes processor time where a run uses exactly one thread of the CPU provider (there it *is* the latency on a free
    core, and other programs on the machine cannot add to it), and elapsed time otherwise.

    ``library``: the path of a library of operators that ONNX Runtime loads first.

    ``precision`` is how the runtime computes with float32 tensors (one of its ``precisions``).
    """

    provider: str = CPU_PROVIDER
    threads: int = 1
    level: str = "all"
    clock: str = "auto"
    runtime: str = DEFAULT_RUNTIME
    precision: str = "float32"
    library: str | None = None

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
        if not isinstance(self.threads, int) or self.threads < 1:
            raise UsageError(f"The number of threads must be a whole number of at least 1, not {self.threads!r}.")

    @property
    def effective_clock(self) -> str:
        """``wall`` or ``cpu``: what ``clock`` means for these options on this machine."""
        if self.clock != "auto":
            return self.clock
        fine = time.get_clock_info("process_time").resolution <= 1e-6
        on_cpu = self.provider == CPU_PROVIDER and runtime(self.runtime).on_processor
        return "cpu" if fine and self.threads == 1 and on_cpu else "wall"


@dataclass(frozen=True)
class TensorInfo:
    """One input or output: its numpy dtype name (``float32``, ``string``, …), or the runtime's own type name where it
    is no tensor.

    A dimension is an integer, a symbol's name, or ``None`` where the model says nothing.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]
    is_tensor: bool = True


@dataclass(frozen=True)
class ModelIO:
    """The interface of a loaded model as the runtime sees it (initialisers that are also listed as inputs are not
    among the inputs).
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


@dataclass(frozen=True)
class FeedSpec:
    """A random input made inside the worker, so that no array crosses the pipe.

    Floats are standard normal, or uniform in ``[low, high]`` where given; integers are uniform in ``[low, high]``
    (both ends included, 0 and 1 by default).
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Handle:
    """A model loaded in a worker; it outlives a crash of the process, being loaded again on next use."""

    key: int
    io: ModelIO
    options: RuntimeOptions
    load_seconds: float = field(compare=False, default=0.0)


class Measurement(NamedTuple):
    """Price of one model: median and interquartile range in milliseconds, of ``samples`` samples.

    ``beside``: of each sample, what it took, a reference model and a walk through memory just before it; empty where
    nothing was timed beside.
    """

    ms: float
    spread_ms: float
    samples: int
    beside: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True)
class Samples:
    """Interleaved timings in milliseconds per run: ``wall_ms`` and ``cpu_ms`` are float64 ``[rounds, models]``,
    ``inner`` runs per entry.
    """

    wall_ms: np.ndarray
    cpu_ms: np.ndarray
    inner: tuple[int, ...]

    def by(self, clock: str) -> np.ndarray:
        """The matrix of one clock, ``wall`` or ``cpu``."""
        return self.cpu_ms if clock == "cpu" else self.wall_ms


class NodeTime(NamedTuple):
    """Kernel time of one node of the runtime's own (optimised) graph: median microseconds over ``runs`` runs."""

    name: str
    op_type: str
    us: float
    runs: int


def unavailable_reason(name: str = DEFAULT_RUNTIME) -> str | None:
    """Why a runtime cannot be used here, or ``None``; opens nothing."""
    return runtime(name).missing()


def provider_name(text: str) -> str:
    """The full name of an execution provider: ``cuda`` and ``CUDAExecutionProvider`` mean the same."""
    if text.endswith("ExecutionProvider"):
        return text
    known = {"cpu": "CPU", "cuda": "CUDA", "tensorrt": "Tensorrt", "dml": "Dml", "rocm": "ROCM", "xnnpack": "Xnnpack",
             "openvino": "OpenVINO", "coreml": "CoreML", "qnn": "QNN", "dnnl": "Dnnl", "acl": "ACL",
             "migraphx": "MIGraphX", "webgpu": "WebGpu"}  # fmt: skip
    return f"{known.get(text.lower(), text)}ExecutionProvider"


def random_array(spec: FeedSpec, rng: np.random.Generator) -> np.ndarray:
    """An array of ``spec.shape`` and ``spec.dtype``; raises :class:`UsageError` for types that have no sensible
    random value.
    """
    if spec.dtype == "bool":
        return rng.integers(0, 2, spec.shape).astype(bool)
    if spec.dtype.startswith(("int", "uint")) and spec.dtype not in ("int4", "uint4", "int2", "uint2"):
        low, high = (0 if spec.low is None else int(spec.low)), (1 if spec.high is None else int(spec.high))
        if high < low:
            raise UsageError(f"The range [{low}, {high}] of an integer input is empty.")
        return rng.integers(low, high, spec.shape, dtype=np.dtype(spec.dtype), endpoint=True)
    if spec.dtype in ("float16", "float32", "float64"):
        return _random_floats(spec, rng).astype(spec.dtype)
    if spec.dtype in ("complex64", "complex128"):
        return (_random_floats(spec, rng) + 1j * _random_floats(spec, rng)).astype(spec.dtype)
    raise UsageError(f"No random input can be made for the type {spec.dtype!r}; give the input's data instead.")


def _random_floats(spec: FeedSpec, rng: np.random.Generator) -> np.ndarray:
    if spec.low is None and spec.high is None:
        return rng.standard_normal(spec.shape)
    return rng.uniform(0.0 if spec.low is None else spec.low, 1.0 if spec.high is None else spec.high, spec.shape)


def feeds_from_specs(specs: Mapping[str, Any], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Arrays as they are, specifications turned into arrays, in the order given (so that a seed means the same data
    everywhere).
    """
    return {name: random_array(spec, rng) if isinstance(spec, FeedSpec) else spec for name, spec in specs.items()}
