"""Stage 5: the file, and the result that the caller receives."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlflow.files import check_output, replacing, write_atomically
from rlflow.report import Report
from rlflow.report.tables import as_text, headline
from rlflow.search import TraceStep

if TYPE_CHECKING:
    from onnx import ModelProto

    from rlflow.pipeline.context import Context
    from rlflow.pipeline.loading import Loaded
    from rlflow.pipeline.racing import Raced

__all__ = ["OptimizeResult", "Written", "write"]


@dataclass(frozen=True)
class OptimizeResult:
    """The optimised model (the original where nothing was gained) and what was done to get it."""

    report: Report
    make: Callable[[], ModelProto] = field(repr=False)
    kind: Callable[[ModelProto], Any] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"<OptimizeResult of {self.report.model}: {headline(self.report)}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from rlflow.report.page import short_page

        return short_page(self.report)

    def summary(self) -> str:
        """The report as the command line prints it."""
        return as_text(self.report)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to ``path``, whole or not at all; too many weights for one file go to ``<path>.data``.

        Raises :class:`rlflow.errors.OutputError`, also where ``path`` is the original's.
        """
        from rlflow.frontends.storage import write as write_model

        target = check_output(path, self.report.model)
        home = os.path.dirname(os.path.abspath(self.report.written or self.report.model))
        proto = self.make()
        write_model(proto, target, home, any(one.data_location == 1 for one in proto.graph.initializer))

    @functools.cached_property
    def model(self) -> Any:
        """The model, of the kind that was given where that was a model of onnx_ir or torch; else a ModelProto.

        The message; of a large model that was written to a file it is read from there when it is first asked for.

        Raises :class:`ModelError` where that file has gone.
        """
        return self.make() if self.kind is None else self.kind(self.make())

    @property
    def improved(self) -> bool:
        return self.report.improved

    @property
    def trace(self) -> tuple[TraceStep, ...] | None:
        """The rewrites in order, each a rule and where it matched; ``None`` where the search keeps no order (an
        e-graph holds all rewrites at once). :func:`rlflow.replay` applies them again.
        """
        steps = self.report.trace
        return None if steps is None else tuple(TraceStep(one["rule"], tuple(one["match"])) for one in steps)


@dataclass(frozen=True)
class Written:
    """What the resulting message is made by, when it is first asked for; ``operators`` and ``size`` describe it, and
    are ``None`` for the model as it came.
    """

    make: Callable[[], ModelProto]
    operators: dict[str, int] | None = None
    size: int | None = None


def write(loaded: Loaded, raced: Raced, context: Context, entry: tuple[str, str] | None = None) -> Written:
    """Write the winner, or the model as it came, to where the user wants it; the latter's file with a metadata
    ``entry``, where that is known and the model is copied.
    """
    return _winner(loaded, raced, context) if raced.winner is not None else _original(loaded, context, entry)


def _winner(loaded: Loaded, raced: Raced, context: Context) -> Written:
    assert raced.winner is not None
    export = raced.winner.export
    context.notes.extend(_needs_more(loaded, export.model))
    if context.output is not None:
        context.stage("writing", f"writing {context.output}")
        export.write(context.output)
    make = _made(export.whole, export.in_one_file, loaded, context)
    return Written(make, operators(export.model), export.size())


def _needs_more(loaded: Loaded, model: ModelProto) -> Iterator[str]:
    """What the result needs beyond the model as it came, which the user allowed; and where it is of an older opset."""
    from rlflow.frontends.scopes import opset_versions

    before, after = opset_versions(loaded.imported.origin.model), opset_versions(model)
    if after.get("", 0) > before.get("", 0):
        yield f"The result needs opset {after['']}; the model had {before.get('', 'none')}."
    if after.get("", 0) < before.get("", 0):
        yield (
            f"The result is written for opset {after['']}, whose AveragePool ONNX Runtime computes faster than that of "
            f"opset {before['']}, which the model had; rlflow optimize --keep-opset leaves it."
        )
    for domain in sorted(set(after) - set(before) - {""}):
        yield f"The result has operators of {domain}, which the model had not."


def _original(loaded: Loaded, context: Context, entry: tuple[str, str] | None) -> Written:
    inside = not loaded.exports.external
    if context.output is not None:
        context.stage("writing", f"writing {context.output} as it came")
        if context.options.freeze or not inside:
            loaded.exports.as_imported().write(context.output)
        else:
            _copy_original(loaded, context.output, entry)
    return Written(_made(lambda: _as_it_came(loaded, context), inside, loaded, context))


def _made(make: Callable[[], ModelProto], inside: bool, loaded: Loaded, context: Context) -> Callable[[], ModelProto]:
    """What makes the resulting message, which must not need this run's temporary files: from the file that was
    written, where it is large and has its weights ``inside``, else it is made now.
    """
    from rlflow.frontends.opening import read_model

    if context.output is not None and inside and loaded.weights is not None and context.output.is_file():
        return functools.partial(read_model, os.path.abspath(context.output))
    model = make()
    return lambda: model


def _copy_original(loaded: Loaded, target: Path, entry: tuple[str, str] | None) -> None:
    from rlflow.frontends import storage

    path = loaded.imported.source_path
    if path is None or not os.path.isfile(path):
        write_atomically(target, loaded.imported.source_bytes())  # which says that the file has gone
        return
    if entry is not None:
        storage.write_metadata(path, *entry, target)
        return
    with open(path, "rb") as source, replacing(target) as stream:
        shutil.copyfileobj(source, stream, 1 << 22)


def _as_it_came(loaded: Loaded, context: Context) -> ModelProto:
    from rlflow.frontends import baseline
    from rlflow.frontends.opening import parse_model

    if context.options.freeze:
        return baseline(loaded.imported)
    return parse_model(loaded.imported.source_bytes(), "the model")


def operators(proto: ModelProto) -> dict[str, int]:
    """How often each operator occurs in the main graph; custom ones carry their domain."""
    counts: dict[str, int] = {}
    for node in proto.graph.node:
        name = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        counts[name] = counts.get(name, 0) + 1
    return counts
