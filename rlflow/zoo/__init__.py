"""The papers' benchmark models, by name, with seeded weights.

>>> from rlflow import zoo
>>> model = zoo.build("squeezenet1.1", batch=1, seed=0)

Weights are random but of trained networks' scale (fan-in), so that outputs are finite, vary with the input, and a check
on them can fail. Listing the zoo opens no ONNX library; building does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlflow.errors import UsageError
from rlflow.specs import did_you_mean
from rlflow.zoo import (
    bert,
    dalle,
    decoders,
    densenet,
    inception,
    llama,
    mobilenet,
    nasnet,
    nasrnn,
    repvgg,
    resnet,
    shufflenet,
    squeezenet,
    taso_bert,
    taso_models,
    taso_nasnet,
    taso_resnet,
    transducer,
    vit,
)
from rlflow.zoo.entry import Option, ZooEntry, declare

if TYPE_CHECKING:
    import onnx

    from rlflow.frontends.builder import ModelBuilder
    from rlflow.frontends.stats import ModelDescription, ModelStats

__all__ = ["ZooEntry", "build", "describe", "entry", "names", "outline", "stats"]

_FAMILIES = (
    squeezenet,
    resnet,
    inception,
    nasnet,
    densenet,
    mobilenet,
    shufflenet,
    repvgg,
    decoders,
    nasrnn,
    bert,
    vit,
    llama,
    transducer,
    dalle,
    taso_resnet,
    taso_nasnet,
    taso_models,
    taso_bert,
)
_ENTRIES: dict[str, ZooEntry] = {item.name: item for family in _FAMILIES for item in family.ENTRIES}


def names() -> list[str]:
    """The models' names: convolutional networks, recurrent ones, Transformers, then TASO's simplified graphs."""
    return list(_ENTRIES)


def entry(name: str) -> ZooEntry:
    """What is known about a model. Raises UsageError, with the nearest names, where there is none."""
    if name not in _ENTRIES:
        raise UsageError(f"The zoo has no model '{name}'. {did_you_mean(name, _ENTRIES)}")
    return _ENTRIES[name]


def build(
    name: str,
    /,
    *,
    batch: int | None = None,
    seq: int | None = None,
    seed: int = 0,
    opset: int | None = None,
    **sizes: Option | None,
) -> onnx.ModelProto:
    """The model ``name`` as ONNX, checked; the same arguments give the same bytes.

    ``seq``: tokens, cached tokens or time steps, as ``entry(name).seq_option`` says. ``sizes``: any of
    ``entry(name).options``; None means the default, as it does for the other arguments. Raises UsageError for an
    unknown name or option, or sizes that do not fit together.
    """
    try:
        return _write(name, batch, seq, seed, opset, sizes, values=True).build()
    except MemoryError as error:
        raise UsageError(f"While building zoo model '{name}': its weights take more memory than there is.") from error


def outline(
    name: str, *, batch: int | None = None, seq: int | None = None, opset: int | None = None, **sizes: Option | None
) -> onnx.ModelProto:
    """The model that build() makes of the arguments without the values of its large weights: enough to search over
    with an analytic cost, in milliseconds. Raises what build() raises.
    """
    return _write(name, batch, seq, 0, opset, sizes, values=False).build()


def describe(
    name: str,
    *,
    batch: int | None = None,
    seq: int | None = None,
    opset: int | None = None,
    **sizes: Option | None,
) -> ModelDescription:
    """Parameters, multiply-accumulates, operators, inputs and outputs of the model that build() makes of the arguments.

    No large weight is drawn, so that it costs milliseconds and a few megabytes for a model of any size. Raises what
    build() raises.
    """
    from rlflow.frontends.stats import describe as row

    return row(_write(name, batch, seq, 0, opset, sizes, values=False).build())


def _write(
    name: str,
    batch: int | None,
    seq: int | None,
    seed: int,
    opset: int | None,
    sizes: Mapping[str, Option | None],
    *,
    values: bool,
) -> ModelBuilder:
    found = entry(name)
    for key, number in (("seed", seed), ("opset", opset)):
        if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
            raise UsageError(f"While building zoo model '{name}': '{key}' is {number!r}; expected a whole number.")
    settled = found.settle(batch, seq, sizes)
    from rlflow.frontends.builder import ModelBuilder  # opens onnx, which listing the zoo does not need

    builder = ModelBuilder(found.name, opset=found.opset if opset is None else opset, seed=seed, values=values)
    declare(builder, found, settled)
    found.write(builder, **settled)
    return builder


def stats(model: onnx.ModelProto) -> ModelStats:
    """(parameters, multiply-accumulates) of a model with static shapes; rlflow.frontends.stats says what counts."""
    from rlflow.frontends.stats import stats as count

    return count(model)
