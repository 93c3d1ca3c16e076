"""Placements written into a model: the device configurations of ONNX IR version 11, by onnx-ir's interface."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import onnx
from onnx import helper

from rlflow.errors import ModelError
from rlflow.frontends import storage
from rlflow.frontends.lean import ir

#: The first version of the format that has them.
IR_VERSION = 11


def placed_model(
    model: onnx.ModelProto, name: str, devices: Sequence[str], stages: Mapping[int, int]
) -> onnx.ModelProto:
    """``model`` with a configuration ``name`` of ``devices``; ``stages``: by the index of a node in the main graph, the
    device that it runs on, written as its pipeline stage (stage k is device k, as onnx-ir suggests).

    Nothing else changes but the IR version, and a configuration of that name that was there is replaced. Raises
    ModelError where onnx-ir cannot read the model.
    """
    shell = onnx.ModelProto()
    storage.copy_fields(model, shell, skip=("graph", "configuration"))
    storage.copy_fields(model.graph, shell.graph, skip=("initializer",))
    listed = {info.name for info in model.graph.input}
    shell.graph.input.extend(  # weights by name alone, so that large ones are not read
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in model.graph.initializer
        if tensor.name not in listed
    )
    for node in shell.graph.node:
        kept = [one for one in node.device_configurations if one.configuration_id != name]
        del node.device_configurations[:]
        node.device_configurations.extend(kept)
    shell.configuration.extend(one for one in model.configuration if one.name != name)
    shell.ir_version = max(model.ir_version, IR_VERSION)
    try:
        annotated = _annotated(shell, name, devices, stages)
    except (ValueError, TypeError, ir.serde.SerdeError) as error:
        raise ModelError(f"While writing the placement: onnx-ir cannot read the model: {error}") from error
    placed = onnx.ModelProto()
    storage.copy_fields(model, placed, skip=("configuration",))
    placed.ir_version = shell.ir_version
    placed.configuration.extend(annotated.configuration)
    for node, theirs in zip(placed.graph.node, annotated.graph.node, strict=True):
        del node.device_configurations[:]
        node.device_configurations.extend(theirs.device_configurations)
    return placed


def _annotated(shell: onnx.ModelProto, name: str, devices: Sequence[str], stages: Mapping[int, int]) -> onnx.ModelProto:
    found = ir.serde.deserialize_model(shell)
    configuration = found.add_device_configuration(name, device_names=tuple(devices))
    for number, node in enumerate(found.graph):
        if number in stages:
            node.set_pipeline_stage(configuration, stages[number])
    return ir.serde.serialize_model(found)


def read_placement(model: onnx.ModelProto, name: str) -> tuple[list[str], dict[int, int]]:
    """(device names, device by node index) of a configuration. Raises ModelError where the model has none so named."""
    found = next((one for one in model.configuration if one.name == name), None)
    if found is None:
        raise ModelError(f"The model has no device configuration {name!r}.")
    stages = {
        number: one.pipeline_stage
        for number, node in enumerate(model.graph.node)
        for one in node.device_configurations
        if one.configuration_id == name
    }
    return list(found.device), stages


def write_placed(model: onnx.ModelProto, path: str | os.PathLike[str], base_dir: str, external: bool) -> None:
    """Write the model, with its weights where they were. Raises OutputError."""
    storage.write(model, path, base_dir, external)
