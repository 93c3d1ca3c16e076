"""ONNX Runtime sessions inside the worker process: opening, running, timing. The only file that imports onnxruntime."""

from __future__ import annotations

import gc
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from rlflow.errors import RuntimeRefused, RuntimeUnavailable
from rlflow.runtime.options import (
    FeedSpec,
    Measurement,
    ModelIO,
    NodeTime,
    RuntimeOptions,
    Samples,
    TensorInfo,
    feeds_from_specs,
)

_LEVEL = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}
_DTYPE = {"float": "float32", "double": "float64"}
#: ONNX element type numbers of the types that numpy lacks and that travel as raw bits.
_RAW_TYPES = {"bfloat16": (16, np.uint16)}
_FEW = 400


ort.disable_telemetry_events()


class Session:
    """One open session and what was asked for when it was opened."""

    def __init__(
        self, source: bytes | str, options: RuntimeOptions, settings: Callable[[Any], None] | None = None
    ) -> None:
        self.options = options
        _require_provider(options.provider)
        chosen = session_options(options)
        if settings is not None:
            settings(chosen)
        started = time.perf_counter()
        try:
            self.ort = ort.InferenceSession(source, chosen, providers=_providers(options.provider))
        except Exception as error:  # the runtime raises a dozen unrelated classes
            raise RuntimeRefused(f"ONNX Runtime refused to load the model: {_short(error)}") from error
        self.load_seconds = time.perf_counter() - started
        if self.ort.get_providers()[0] != options.provider:
            raise RuntimeUnavailable(
                f"ONNX Runtime could not start its {options.provider} and fell back to {self.ort.get_providers()[0]}; "
                "check its driver and libraries, or choose another provider."
            )
        self.io = ModelIO(tuple(map(_info, self.ort.get_inputs())), tuple(map(_info, self.ort.get_outputs())))
        self._types = {info.name: info.dtype for info in self.io.inputs + self.io.outputs}

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Outputs by name; bfloat16 comes back as float32 (exact), sequences as lists."""
        names = list(outputs) if outputs is not None else [info.name for info in self.io.outputs]
        raw = [name for name in names if self._types.get(name) in _RAW_TYPES]
        plain = [name for name in names if name not in raw]
        try:
            if not raw and not any(self._types.get(name) in _RAW_TYPES for name in feeds):
                return dict(zip(names, self.ort.run(names, dict(feeds)), strict=True))
            found = self._run_values(feeds, plain, raw)
        except RuntimeRefused:
            raise
        except Exception as error:
            raise RuntimeRefused(f"ONNX Runtime failed to run the model: {_short(error)}") from error
        return {name: found[name] for name in names}

    def _run_values(self, feeds: Mapping[str, Any], plain: list[str], raw: list[str]) -> dict[str, Any]:
        """The way round numpy's missing types: bits in, bits out, the shape of raw outputs learnt from a first run."""
        values = {name: self._value(name, value) for name, value in feeds.items()}
        first = dict(zip(plain + raw, self.ort.run_with_ort_values(plain + raw, values), strict=True))
        found = {name: first[name].numpy() for name in plain}
        if raw:
            binding, buffers = self.ort.io_binding(), {}
            for name, value in values.items():
                binding.bind_ortvalue_input(name, value)
            for name in raw:
                number, bits = _RAW_TYPES[self._types[name]]
                buffers[name] = np.empty(first[name].shape(), bits)
                binding.bind_output(name, "cpu", 0, number, first[name].shape(), buffers[name].ctypes.data)
            self.ort.run_with_iobinding(binding)
            found |= {name: _bfloat16_to_float32(bits) for name, bits in buffers.items()}
        return found

    def _value(self, name: str, array: Any) -> Any:
        dtype = self._types.get(name, "")
        if dtype in _RAW_TYPES:
            return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(_float32_to_bfloat16(array), _RAW_TYPES[dtype][0])
        return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))

    def runner(self, feeds: Mapping[str, Any]) -> Callable[[], None]:
        """A call without arguments that runs the model once on bound inputs, with as little Python around it as there
        is.
        """
        known = {info.name for info in self.io.inputs}
        if not all(info.is_tensor and info.dtype != "string" for info in self.io.inputs + self.io.outputs):
            taken = {name: value for name, value in feeds.items() if name in known}
            self.run(taken)
            return lambda: self.ort.run(None, taken)
        binding = self.ort.io_binding()
        try:
            for name, value in feeds.items():
                if name in known:
                    binding.bind_ortvalue_input(name, self._value(name, value))
            for info in self.io.outputs:
                binding.bind_output(info.name)
        except Exception as error:
            raise RuntimeRefused(f"ONNX Runtime refused the inputs: {_short(error)}") from error
        run, bound = self.ort._sess.run_with_iobinding, binding._iobinding

        # The binding owns the inputs' OrtValues, which alias the caller's arrays: the closure must keep it alive.
        def once(kept_alive: Any = binding) -> None:
            run(bound, None)

        try:
            once()
        except Exception as error:
            raise RuntimeRefused(f"ONNX Runtime failed to run the model: {_short(error)}") from error
        return once


def session_options(options: RuntimeOptions) -> Any:
    """Session options with pinned thread counts.

    Spinning is off: sessions that are timed in turn would otherwise take the processor from one another, by a factor
    of two on two cores.
    """
    chosen = ort.SessionOptions()
    chosen.intra_op_num_threads = options.threads
    chosen.inter_op_num_threads = 1
    chosen.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    chosen.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVEL[options.level])
    chosen.add_session_config_entry("session.intra_op.allow_spinning", "0")
    chosen.add_session_config_entry("session.inter_op.allow_spinning", "0")
    chosen.log_severity_level = 3
    return chosen


#: Models whose run is shorter than this are run once untimed before each sample; to longer ones refilling the caches
#: (tens of megabytes, about a millisecond) means little.
SETTLE_BELOW_NS = 50_000_000


def time_interleaved(
    sessions: Sequence[Session],
    feeds: Sequence[Mapping[str, Any]],
    rounds: int,
    inner: int | None,
    seed: int,
    seconds: float | None,
    min_rounds: int,
    min_sample: float,
) -> Samples:
    """Time all models once per round, in a random order per round.

    Within a round every model meets the same state of the machine, so that rounds are pairs; the random order makes
    the models exchangeable within a round where they are equally fast, which is what the significance test assumes.
    ``inner`` runs make one sample; ``None`` chooses, per model, enough of them to fill ``min_sample`` seconds.
    ``seconds`` stops early, after at least ``min_rounds``.

    A sample shows the model in a loop of its own, as it is deployed: the model before it has left the caches full of
    *its* weights, so a model of short runs first runs once untimed. This is a choice, and it can move a ratio: on a
    decoder step that reads 50 MB of weights, timed both ways in one run, the untimed run took 4 % off the original's
    time and 10 % off its rewritten form's (speed-up 1.26 with it, 1.19 without).
    """
    runners = [session.runner(feed) for session, feed in zip(sessions, feeds, strict=True)]
    counts = [inner or runs_to_fill(runner, min_sample) for runner in runners]
    settles = [_sample(runner, 1)[0] < SETTLE_BELOW_NS for runner in runners]
    rng = np.random.default_rng(seed)
    wall, cpu = np.empty((rounds, len(runners))), np.empty((rounds, len(runners)))
    done, deadline = 0, None if seconds is None else time.perf_counter() + seconds
    with _no_garbage_collection():
        for done in range(1, rounds + 1):
            for column in rng.permutation(len(runners)):
                if settles[column]:
                    runners[column]()
                wall[done - 1, column], cpu[done - 1, column] = _sample(runners[column], counts[column])
            if deadline is not None and done >= min_rounds and time.perf_counter() >= deadline:
                break
    return Samples(wall[:done] / 1e6, cpu[:done] / 1e6, tuple(counts))


def measure(
    source: bytes,
    specs: Mapping[str, Any] | None,
    options: RuntimeOptions,
    min_sample: float,
    repeats: int,
    seed: int,
    flush_bytes: int,
    sessions: int,
) -> Measurement:
    """Median and interquartile range of one small model.

    ``specs`` ``None`` makes random inputs from the model's own static shapes.
    """
    samples: list[float] = []
    opened: list[Session] = []
    for number in range(sessions):
        opened = [*opened[-1:], Session(source, options)]  # the last one stays open, so that this one lies elsewhere
        share = repeats // sessions + (number < repeats % sessions)
        samples += _measure_session(opened[-1], specs, share, min_sample, seed, flush_bytes)
    low, median, high = np.percentile(samples, [25, 50, 75])
    return Measurement(float(median), float(high - low), len(samples))


def _measure_session(
    session: Session, specs: Mapping[str, Any] | None, repeats: int, min_sample: float, seed: int, flush_bytes: int
) -> list[float]:
    rng = np.random.default_rng(seed)
    once = session.runner(feeds_from_specs(_own_specs(session.io) if specs is None else specs, rng))
    clock = 1 if session.options.effective_clock == "cpu" else 0
    flush = np.zeros(flush_bytes // 8) if flush_bytes else None
    inner = 1 if flush is not None else runs_to_fill(once, min_sample)
    samples = []
    with _no_garbage_collection():
        for _ in range(repeats):
            if flush is not None:
                flush += 1.0  # pushes the weights out of the caches, to where a whole model would read them from
            samples.append(_sample(once, inner)[clock] / 1e6)
    return samples


def runs_to_fill(once: Callable[[], None], seconds: float) -> int:
    """How many runs fill ``seconds``; warms the model up on the way."""
    count = 1
    while True:
        elapsed = _sample(once, count)[0] * count / 1e9
        if elapsed >= seconds:
            # The first runs are slow (pages, caches), so look again with a warm model before settling for few.
            best = min(elapsed, _sample(once, count)[0] * count / 1e9)
            if best >= seconds:
                return count
            elapsed = best
        count = max(count + 1, min(count * 16, int(count * seconds / max(elapsed, 1e-9) * 1.1) + 1))


def profile(source: bytes | str, options: RuntimeOptions, feeds: Mapping[str, Any], runs: int) -> list[NodeTime]:
    """Kernel time of each node of the runtime's optimised graph, in execution order, by the runtime's own profiler."""
    with tempfile.TemporaryDirectory(prefix="rlflow-profile-") as folder:

        def settings(chosen: Any) -> None:
            chosen.enable_profiling = True
            chosen.profile_file_prefix = os.path.join(folder, "trace")

        session = Session(source, options, settings)
        for _ in range(runs + 1):
            session.run(feeds)
        events = json.loads(Path(session.ort.end_profiling()).read_text(encoding="utf-8"))
    durations: dict[tuple[str, str], list[float]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            key = (event["name"].removesuffix("_kernel_time"), event.get("args", {}).get("op_name", ""))
            durations.setdefault(key, []).append(float(event["dur"]))
    return [
        NodeTime(name, op, float(np.median(times[1:] or times)), len(times) - 1)
        for (name, op), times in durations.items()
    ]


def optimized(source: bytes | str, options: RuntimeOptions) -> bytes:
    """The graph that the runtime would execute at ``options.level``, serialized."""
    with tempfile.TemporaryDirectory(prefix="rlflow-optimized-") as folder:
        target = os.path.join(folder, "model.onnx")

        def settings(chosen: Any) -> None:
            chosen.optimized_model_filepath = target

        Session(source, options, settings)
        return Path(target).read_bytes()


def describe(provider: str) -> dict[str, Any]:
    """Identity of runtime and device, as strings that can key a price."""
    affinity = getattr(os, "sched_getaffinity", None)
    cpu = _cpu_model()
    return {
        "runtime": "onnxruntime",
        "version": ort.__version__,
        "provider": provider,
        "providers": list(ort.get_available_providers()),
        "device": cpu if provider == "CPUExecutionProvider" else _gpu_model() or f"{provider} on {cpu}",
        "cpu": cpu,
        "threads_available": len(affinity(0)) if affinity else os.cpu_count() or 1,
        "platform": f"{platform.system()} {platform.machine()}",
    }


def identity_model() -> bytes:
    """``y = Identity(x)`` on one float, written as raw protobuf so that no ONNX library is needed here."""

    def field(number: int, value: int | bytes) -> bytes:
        if isinstance(value, int):
            return bytes([number << 3, value])
        return bytes([number << 3 | 2, len(value)]) + value

    shape = field(2, field(1, field(1, 1)))
    kind = field(2, field(1, field(1, 1) + shape))
    node = field(1, b"x") + field(2, b"y") + field(4, b"Identity")
    graph = field(1, node) + field(2, b"g") + field(11, field(1, b"x") + kind) + field(12, field(1, b"y") + kind)
    return field(1, 8) + field(7, graph) + field(8, field(1, b"") + field(2, 13))


class _no_garbage_collection:  # noqa: N801 - reads as a statement
    """Keep Python's collector out of timed loops."""

    def __enter__(self) -> None:
        self._was = gc.isenabled()
        gc.collect()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was:
            gc.enable()


def _sample(once: Callable[[], None], count: int) -> tuple[float, float]:
    """Nanoseconds per run, by the wall and by the processor clock, over ``count`` runs."""
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(count):
        once()
    cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
    return wall / count, cpu / count


def _own_specs(io: ModelIO) -> dict[str, FeedSpec]:
    specs = {}
    for info in io.inputs:
        if not info.is_tensor or not all(isinstance(dim, int) for dim in info.shape):
            raise RuntimeRefused(
                f"The input {info.name!r} has no static shape ({info.shape}); say which shape to measure it at."
            )
        specs[info.name] = FeedSpec(tuple(int(dim) for dim in info.shape if isinstance(dim, int)), info.dtype)
    return specs


def _info(arg: Any) -> TensorInfo:
    if not arg.type.startswith("tensor("):
        return TensorInfo(arg.name, arg.type, (), is_tensor=False)
    dtype = arg.type[len("tensor(") : -1]
    shape = tuple(dim if isinstance(dim, int) or (isinstance(dim, str) and dim) else None for dim in arg.shape)
    return TensorInfo(arg.name, _DTYPE.get(dtype, dtype), shape)


def _require_provider(provider: str) -> None:
    if provider not in ort.get_available_providers():
        raise RuntimeUnavailable(
            f"This ONNX Runtime ({ort.__version__}) has no {provider}; "
            f"it offers {', '.join(ort.get_available_providers())}."
        )


def _providers(provider: str) -> list[str]:
    return [provider] if provider == "CPUExecutionProvider" else [provider, "CPUExecutionProvider"]


def _float32_to_bfloat16(array: Any) -> np.ndarray:
    """Bits of the nearest bfloat16 (ties to even); arrays that already hold 16-bit words pass as they are."""
    array = np.ascontiguousarray(array)
    if array.dtype.itemsize == 2 and array.dtype != np.float16:
        return array.view(np.uint16)
    bits = array.astype(np.float32).view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(array.astype(np.float32)), np.uint16(0x7FC0), rounded).astype(np.uint16)


def _bfloat16_to_float32(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _cpu_model() -> str:
    """Name of the processor with family, model and widest vector unit: virtual machines hide the name, and kernels
    depend on the unit.
    """
    path = Path("/proc/cpuinfo")
    facts: dict[str, str] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), " ".join(value.split()))
    name = facts.get("model name") or platform.processor() or platform.machine()
    number = f" ({facts['cpu family']}/{facts['model']})" if "cpu family" in facts and "model" in facts else ""
    flags = set(facts.get("flags", facts.get("Features", "")).split())
    unit = next(
        (flag for flag in ("amx_tile", "avx512_vnni", "avx512f", "avx2", "avx", "sve", "asimd") if flag in flags), ""
    )
    return f"{name}{number} {unit}".strip()


def _gpu_model() -> str | None:
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("Model:"):
                return " ".join(line.split(":", 1)[1].split())
    return None


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    text = text.removeprefix("[ONNXRuntimeError] : ")
    return text if len(text) <= _FEW else text[: _FEW - 1] + "…"
