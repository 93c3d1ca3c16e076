"""Stage 1: the model as it came, its graph, and the rules that apply to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.deployment import shared_weights, source_of
from rlflow.errors import ModelError
from rlflow.pipeline.exports import Exports
from rlflow.rulesets import Allowed, left_to_kernels, load_library, writable

if TYPE_CHECKING:
    from rlflow.equivalence.sizes import Extent
    from rlflow.frontends.storage import SharedWeights
    from rlflow.graph import Graph
    from rlflow.options import Options
    from rlflow.pipeline.context import Context

__all__ = ["Loaded", "load"]


@dataclass(frozen=True)
class Loaded:
    """A model that can be searched. ``name``: what a report calls it; ``size``: its bytes as it came; ``graph``: as it
    was imported; ``source``: what the runtime loads for it.

    ``library`` is ``None`` for a model that is carried through as it came, else the rules that apply to it, and
    ``ruleset`` the same compiled. ``weights``: the file that the large weights of the model and its rewrites are shared
    in, where they are many. ``extents``: the sizes of open dimensions that the user gave. ``growths``: of the rounding
    error, by rule. ``others``: rules whose results the model may not have, for its opset or a domain.
    """

    name: str
    size: int
    graph: Any
    imported: Any
    source: bytes | str
    weights: SharedWeights | None
    library: Any
    exports: Exports
    ruleset: Any = None
    extents: Mapping[str, Extent] = field(default_factory=dict)
    growths: Mapping[str, float] = field(default_factory=dict)
    others: tuple[Any, ...] = ()


def load(model: Any, context: Context) -> Loaded:
    """Read the model and the rules; raises :class:`ModelError` and :class:`UsageError` for what cannot be searched."""
    from rlflow.frontends import load_model
    from rlflow.frontends.lowering import faster_opset
    from rlflow.rewrite import compiled
    from rlflow.rewrite.bundles import read_bundles

    options = context.options
    imported = load_model(
        model,
        keep_initializer_inputs=options.keep_initializer_inputs,
        freeze=options.freeze or None,
        newest_opset=options.allow_opset,
    )
    context.notes.extend(imported.notes)
    source = source_of(imported, model)
    known = (_name(model, imported), _size(model, imported), imported.graph, imported)
    if imported.passthrough is not None:
        return Loaded(*known, source, None, None, Exports(imported, None, None, context))
    extents = _extents(options, imported)
    _check_weights(imported)
    weights = shared_weights(imported, options.place, lambda: context.folder)
    if weights is not None and not options.freeze:
        source = weights.write(weights.slim(imported.origin.model), "original.onnx")
    opset = max(imported.origin.opset, imported.origin.newest)
    rules = writable(_wanted_rules(options, imported.graph), Allowed(opset, frozenset(options.allow_domain)))
    context.notes.extend(rules.notes)
    library, ruleset = rules.library, compiled(rules.library)
    older = faster_opset(imported) if context.lowers_opset else None
    exports = Exports(imported, ruleset, weights, context, older)
    growths = {rule.name: rule.proof.growth for rule in library.values() if rule.proof is not None}
    read_bundles()  # the search uses them: a file that cannot be read is said now
    return Loaded(*known, source, weights, library, exports, ruleset, extents, growths, rules.others)


def _wanted_rules(options: Any, graph: Graph) -> Any:
    """The rules that the options name, without those that are left to the kernels."""
    library = load_library(options.chosen_rules)
    if not options.leaves_to_kernels:
        return library
    from rlflow.kernels.preparing import block_here

    return left_to_kernels(library, graph, block_here())


def _name(model: Any, imported: Any) -> str:
    return str(model) if isinstance(model, (str, os.PathLike)) else imported.origin.model.graph.name or "<model>"


def _size(model: Any, imported: Any) -> int:
    if imported.source_path is not None:
        return os.path.getsize(imported.source_path)
    return len(model) if isinstance(model, bytes) else imported.origin.model.ByteSize()


def _extents(options: Options, imported: Any) -> dict[str, Extent]:
    """The sizes that the user gives to open dimensions, by name or by the shapes of inputs."""
    from rlflow.equivalence import sizes
    from rlflow.frontends import symbolic

    sizes.require_open(options.dims, [imported])
    graph, shapes = imported.graph, {}
    for node in graph.inputs():
        dims = graph.shape(graph.node_outputs(node)[0])
        named = None if dims is None else [symbolic.unquote(dim) if isinstance(dim, str) else dim for dim in dims]
        shapes[graph.input_name(node)] = named
    return sizes.together(options.extents, sizes.of_shapes(options.shapes, shapes))


def _check_weights(imported: Any) -> None:
    """Refuse NaN weights: no output could be compared with the original's. Infinite ones (masks) are fine."""
    for name, constant in imported.origin.constants.items():
        array = imported.constants[constant.digest]
        if array.dtype.kind == "f" and array.size and np.isnan(array.min()):
            raise ModelError(
                f"While checking the model: the weight '{name}' holds NaN, so its outputs say nothing and no "
                "result could be compared with the original's; repair the weight, or leave the model as it is."
            )
