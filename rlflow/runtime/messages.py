"""What the worker and its clients tell each other: a model's interface, its inputs, how it is timed, and results."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rlflow.errors import UsageError

#: A model as this package takes it: serialized ONNX, or the path of a file (needed for external data).
ModelSource = bytes | str | os.PathLike[str]


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
class TimingPlan:
    """How a small model is timed: ``repeats`` samples over so many ``sessions``, each of as many runs as last
    ``min_sample`` seconds, on inputs of this ``seed``. With ``flush_bytes`` a sample is one run, after walking through
    so much memory.
    """

    min_sample: float = 2e-4
    repeats: int = 9
    seed: int = 0
    flush_bytes: int = 0
    sessions: int = 1

    def share(self, session: int) -> int:
        """The samples that fall to one of the sessions."""
        return self.repeats // self.sessions + (session < self.repeats % self.sessions)


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
    """Kernel time of one node of the runtime's own (optimised) graph: median microseconds over ``runs`` runs; the shape
    of its first input, and the least microseconds, where the runtime tells.
    """

    name: str
    op_type: str
    us: float
    runs: int
    shape: tuple[int, ...] | None = None
    least_us: float | None = None


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
