"""The papers' benchmark models, by name, with seeded weights.

>>> from rlflow import zoo
>>> model = zoo.build("squeezenet1.1", batch=1, seed=0)

Weights are random but of trained networks' scale (fan-in), so that outputs are finite, vary with the input, and a check
on them can fail. Listing the zoo opens no ONNX library; building does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlflow.errors import UsageError
from rlflow.zoo import bert, densenet, inception, llama, nasrnn, repvgg, squeezenet
from rlflow.zoo.entry import Option, ZooEntry, declare, suggest

if TYPE_CHECKING:
    import onnx

    from rlflow.frontends.stats import ModelStats

__all__ = ["ZooEntry", "build", "entry", "names", "stats"]

_FAMILIES = (squeezenet, inception, densenet, repvgg, nasrnn, bert, llama)
_ENTRIES: dict[str, ZooEntry] = {item.name: item for family in _FAMILIES for item in family.ENTRIES}


def names() -> list[str]:
    """The models' names, convolutional networks first."""
    return list(_ENTRIES)


def entry(name: str) -> ZooEntry:
    """What is known about a model. Raises UsageError, with the nearest names, where there is none."""
    if name not in _ENTRIES:
        raise UsageError(f"The zoo has no model '{name}'.{suggest(name, _ENTRIES)}")
    return _ENTRIES[name]


def build(
    name: str,
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
    found = entry(name)
    settled = found.settle(batch, seq, sizes)
    from rlflow.frontends.builder import ModelBuilder  # opens onnx, which listing the zoo does not need

    builder = ModelBuilder(found.name, opset=found.opset if opset is None else opset, seed=seed)
    declare(builder, found, settled)
    found.write(builder, **settled)
    return builder.build()


def stats(model: onnx.ModelProto) -> ModelStats:
    """(parameters, multiply-accumulates) of a model with static shapes; rlflow.frontends.stats says what counts."""
    from rlflow.frontends.stats import stats as count

    return count(model)
