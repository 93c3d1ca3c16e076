"""ONNX Runtime in the caller's own process, for sessions that the caller keeps. Everything that is priced or compared
runs in a worker instead.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import onnxruntime as ort

from rlflow.errors import RuntimeRefused
from rlflow.files import ScratchFolder
from rlflow.runtime.base import runtime
from rlflow.runtime.loops import cpu_model, random_feeds, short
from rlflow.runtime.session_options import GENERATED_ENTRY, RuntimeOptions


def version() -> str:
    """ONNX Runtime's version."""
    return str(ort.__version__)


def processor() -> str:
    """The processor's name."""
    return cpu_model()


def optimised(source: bytes | str) -> bytes:
    """The graph that ONNX Runtime would execute on this processor, serialised. Raises RuntimeRefused."""
    with ScratchFolder("rlflow-optimized-") as folder:
        target = os.path.join(folder, "model.onnx")
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.optimized_model_filepath = target
        open_session(source, options, ["CPUExecutionProvider"])
        with open(target, "rb") as stream:
            return stream.read()


def open_session(source: bytes | str, options: Any, providers: Sequence[Any] | None) -> Any:
    """A session as the caller wants it. Raises RuntimeRefused."""
    chosen = list(providers) if providers is not None else ["CPUExecutionProvider"]
    try:
        return ort.InferenceSession(source, options, providers=chosen)
    except Exception as error:  # the runtime raises a dozen unrelated classes
        raise RuntimeRefused(f"ONNX Runtime refused to load the model: {short(error)}") from error


def trial(source: bytes | str, library: str | None = None, code: str | None = None) -> None:
    """Run a model once, with inputs of the shapes that it states. Raises RuntimeRefused with what went wrong."""
    options = RuntimeOptions(level="all" if library is None else "disable", library=library, generated=code)
    session = runtime(options.runtime).open(source, options)
    session.run(random_feeds(session, None, seed=0))


def new_options() -> Any:
    """Session options with the runtime's defaults."""
    return ort.SessionOptions()


def with_library(options: Any, library: str, code: str | None = None) -> Any:
    """Let sessions of ``options`` load operators from ``library``, and generated ``code``, and take the graph as it is;
    returns what undoes the latter. Raises RuntimeRefused with the library's sentence.
    """
    level = options.graph_optimization_level
    try:
        if code is not None:
            options.add_session_config_entry(GENERATED_ENTRY, code)
        options.register_custom_ops_library(library)
    except Exception as error:
        raise RuntimeRefused(f"ONNX Runtime refused the library of kernels: {short(error)}") from error
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL

    def undo() -> None:
        options.graph_optimization_level = level

    return undo


def register_provider(name: str, library: str) -> None:
    """Register the execution provider in ``library`` under ``name``. Raises RuntimeRefused with its sentence."""
    try:
        ort.register_execution_provider_library(name, library)
    except Exception as error:
        raise RuntimeRefused(f"ONNX Runtime refused the execution provider: {short(error)}") from error


def provider_devices(name: str) -> list[Any]:
    """The devices of a registered execution provider; none where it is not registered."""
    return [one for one in ort.get_ep_devices() if one.ep_name == name]


def add_devices(options: Any, devices: Sequence[Any], entries: Mapping[str, str], code: str | None) -> None:
    """Let sessions of ``options`` use the execution provider of these devices, with options of its own, and let it load
    generated ``code``. Raises RuntimeRefused.
    """
    try:
        options.add_provider_for_devices(list(devices), dict(entries))
        if code is not None:
            options.add_session_config_entry(GENERATED_ENTRY, code)
    except Exception as error:
        raise RuntimeRefused(f"ONNX Runtime refused the execution provider: {short(error)}") from error
