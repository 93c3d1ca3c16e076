"""Opening what is given as a model: a path, bytes or a ModelProto; what is none is refused in one sentence."""

from __future__ import annotations

import mmap
import os
from contextlib import ExitStack

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import helper

from rlflow.errors import ModelError, UsageError
from rlflow.frontends import scopes
from rlflow.frontends.model_kinds import plain_model

OLDEST_OPSET = 7
#: A model as it may be given; also an onnx_ir.Model and a torch.onnx.ONNXProgram, which are not opened for this name.
Source = str | os.PathLike[str] | bytes | onnx.ModelProto


def open_source(source: Source) -> tuple[onnx.ModelProto, str | None, bytes | onnx.ModelProto | None]:
    """(the library's own ModelProto, path, what was given instead of a path) of a source."""
    source = plain_model(source)[0]
    if isinstance(source, onnx.ModelProto):
        model = onnx.ModelProto()
        model.CopyFrom(source)
        return model, None, source
    if isinstance(source, (bytes, bytearray, memoryview)):
        raw = bytes(source)
        return parse_model(raw, "the given bytes"), None, raw
    if not isinstance(source, (str, os.PathLike)):
        raise UsageError(f"A model is a path, bytes or a ModelProto; {type(source).__name__} is none of them.")
    path = os.fspath(source)
    return read_model(path), path, None


def place_of(path: str | None) -> str:
    return "the given model" if path is None else f"'{path}'"


def read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError as error:
        raise ModelError(f"While loading a model: the file '{path}' does not exist.") from error
    except IsADirectoryError as error:
        raise ModelError(f"While loading a model: '{path}' is a directory; expected an ONNX file.") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"While loading a model: {path!r} cannot be read: {reason}.") from error


def read_model(path: str) -> onnx.ModelProto:
    """The ModelProto in a file, parsed where the system maps it. Raises ModelError."""
    try:
        with ExitStack() as stack:
            file = stack.enter_context(open(path, "rb"))
            mapped = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            return parse_model(stack.enter_context(memoryview(mapped)), place_of(path))
    except (OSError, ValueError):  # no file, an empty one, or none that can be mapped
        return parse_model(read_file(path), place_of(path))


def parse_model(raw: bytes | memoryview, place: str) -> onnx.ModelProto:
    """A ModelProto of serialised bytes; ``place`` names them in the ModelError that is raised for anything else."""
    if not raw:
        raise ModelError(f"While loading a model: {place} is empty; expected a serialised ONNX ModelProto.")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(raw)
    except DecodeError as error:
        raise ModelError(
            f"While loading a model: {place} ({len(raw)} bytes) is not a serialised ONNX ModelProto; "
            "it is something else, or truncated."
        ) from error
    return model


def require_graph(model: onnx.ModelProto, place: str) -> None:
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelError(
            f"While loading a model: {place} holds no graph; expected an ONNX model with nodes and outputs."
        )
    if not model.graph.output:
        raise ModelError(f"While loading a model: the graph of {place} has no outputs; it computes nothing.")


def assume_opset(model: onnx.ModelProto, notes: list[str]) -> None:
    """Adds the default domain's opset where the model forgot it: the one of its IR version's first release."""
    if "" in scopes.opset_versions(model):
        return
    domains: set[str] = set()
    scopes.walk(model.graph, lambda node: domains.add(scopes.domain_of(node)))
    if "" not in domains:
        return
    opset = first_opset(model)
    model.opset_import.append(helper.make_opsetid("", opset))
    notes.append(
        f"The model imports no opset of the default domain; opset {opset}, "
        f"that of IR version {model.ir_version}, is assumed."
    )


def first_opset(model: onnx.ModelProto) -> int:
    """The default domain's opset in the first release of the model's IR version."""
    released = [row[2] for row in helper.VERSION_TABLE if row[1] == model.ir_version]
    return max(min(released, default=OLDEST_OPSET), OLDEST_OPSET)


def refusal(model: onnx.ModelProto) -> str | None:
    opset = scopes.opset_versions(model).get("", OLDEST_OPSET)
    newest = onnx.defs.onnx_opset_version()
    if opset < OLDEST_OPSET:
        return f"its opset is {opset}, and forms before opset {OLDEST_OPSET} are not read"
    if opset > newest:
        return f"its opset is {opset}, and the installed onnx knows those up to {newest}"
    if model.graph.sparse_initializer:
        return "it has sparse initialisers"
    if model.training_info:
        return "it carries its own training step"
    return None
