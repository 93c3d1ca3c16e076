"""The façade: one call from a model to a faster one (the stages: ``pipeline``), and its smaller companions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlflow import search as _search
from rlflow.deployment import Deployment, Inputs, as_source, open_worker, source_of, verified
from rlflow.equivalence.runners import runner
from rlflow.options import Options, with_keywords
from rlflow.pipeline import Context, OptimizeResult, run
from rlflow.rulesets import load_library, with_algorithms
from rlflow.search import Progress, StopToken
from rlflow.specs import check_whole

if TYPE_CHECKING:
    from onnx import ModelProto

    from rlflow.equivalence import Verification
    from rlflow.equivalence.runners import CheckProgress
    from rlflow.pipeline.shrinking import ShrinkResult
    from rlflow.price.allowance import PricingProgress
    from rlflow.race.track import RaceProgress
    from rlflow.runtime import Worker

__all__ = ["OptimizeResult", "Options", "optimize", "replay", "shrink", "simplified", "simplify", "verify"]


@with_keywords
def optimize(
    model: Any,
    *,
    output: str | os.PathLike[str] | None = None,
    options: Options | None = None,
    quiet: bool | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
    on_pricing: Callable[[PricingProgress], None] | None = None,
    on_timing: Callable[[RaceProgress], None] | None = None,
    on_checking: Callable[[CheckProgress], None] | None = None,
    stop: StopToken | None = None,
    **keywords: Any,
) -> OptimizeResult:
    """Search for an equivalent faster model, confirm it by the clock and by its outputs, and return it with a report.

    ``model``: a path, bytes, a ModelProto, an ``onnx_ir.Model`` or a ``torch.onnx.ONNXProgram``; ``result.model`` is of
    the same kind for the last two, else a ModelProto.

    The keywords are the fields of :class:`rlflow.Options`, which explains them; they may also be given as one value,
    ``options``, which keywords change. ``output``: file to write; where nothing is gained it receives the model as it
    came.

    How far it is, stderr shows on a terminal and in a notebook; ``quiet=True`` shows nothing, ``quiet=False`` writes
    plain lines everywhere else, too. You can also listen yourself, and nothing is shown then unless ``quiet=False``:
    ``on_stage`` is told what happens next, ``on_pricing`` about the prices that are measured before the search,
    ``on_progress`` about the search, five times a second, ``on_timing`` about the final comparison and ``on_checking``
    about the comparison of outputs.

    Ctrl-C, and ``stop``, end the search with the best so far; a second Ctrl-C raises KeyboardInterrupt. A signal that
    your script does not handle, such as SIGTERM, ends it as Python does: no half-written output, and temporary files
    that stay until the next run removes them.

    Raises :class:`rlflow.errors.UsageError` (also :class:`BudgetError`), :class:`ModelError`, :class:`CostError`,
    :class:`OutputError`, and :class:`VerificationFailed` where the outputs differ; then nothing is written.
    """
    chosen = Options.of(options, keywords)
    from rlflow.frontends.model_kinds import plain_model
    from rlflow.report.live import reporter

    plain, kind = plain_model(model)
    own: dict[str, Any] = {"on_stage": on_stage, "on_pricing": on_pricing, "on_progress": on_progress}
    own |= {"on_timing": on_timing, "on_checking": on_checking}
    heard = quiet is None and any(own.values())
    with reporter(heard or quiet) as board, _listened(chosen, output, stop, board.listeners(own)) as context:
        return replace(run(plain, context), kind=kind)


def _listened(options: Options, output: Any, stop: StopToken | None, listeners: dict[str, Any]) -> Context:
    return Context(options, output=output, stop=stop, **listeners)


def simplify(model: str | os.PathLike[str] | bytes | ModelProto, **keywords: Any) -> ModelProto:
    """The clean-up alone, without a clock: constants and normalisations folded, idle and duplicate nodes gone, linear
    layers as one node; the outputs are compared with the original's. ``output`` and the options ``freeze``, ``dims``,
    ``input_data``, ``verify``, ``keep_initializer_inputs``, ``seed`` and ``threads`` are those of :func:`optimize`.

    The result is of the kind that :func:`optimize` returns for such a model. Raises as that does; the model that was
    passed in is not changed.
    """
    return simplified(model, **keywords).model


def simplified(
    model: str | os.PathLike[str] | bytes | ModelProto,
    *,
    output: str | os.PathLike[str] | None = None,
    worker: Worker | None = None,
    **keywords: Any,
) -> OptimizeResult:
    """As :func:`simplify`, with the report; ``worker``, which may still be starting, runs the models."""
    from rlflow.frontends.model_kinds import plain_model
    from rlflow.pipeline.simplifying import simplify as simplify_in

    plain, kind = plain_model(model)
    with Context(Options.of(None, {**keywords, "cost": "analytic"}), output=output, worker=worker) as context:
        return replace(simplify_in(plain, context), kind=kind)


def shrink(
    model: str | os.PathLike[str] | bytes | ModelProto,
    *,
    output: str | os.PathLike[str] | None = None,
    memory: int | None = None,
    slower: float = 1.1,
    seconds: float = 20.0,
    race_seconds: float = 20.0,
    search: Any = "mixed",
    budget: Any = "30s",
    on_stage: Callable[[str], None] | None = None,
    stop: StopToken | None = None,
    **keywords: Any,
) -> ShrinkResult:
    """Make a model need less memory while it runs, at most ``slower`` times as slow, with equal outputs.

    ``memory``: bytes beside the weights that it may need (``None``: as few as can be found); ``seconds`` of each search
    for stretches, ``race_seconds`` of one comparison by the clock. The strategy ``search`` first rewrites the model for
    speed, which takes ``budget``; with ``None`` it does not. ``output``: file to write; where nothing is gained it
    receives the model as it came. The other keywords are the options ``freeze``, ``dims``, ``input_data``, ``verify``,
    ``seed`` and ``threads`` of :func:`optimize`. ``result.model`` is the smaller model, a ModelProto, and
    ``result.report`` says what was done.

    Raises as :func:`optimize` does, and :class:`rlflow.errors.CostError` where ``memory`` cannot be met; then nothing
    is written.
    """
    from rlflow.frontends.model_kinds import plain_model
    from rlflow.pipeline.shrinking import Wish
    from rlflow.pipeline.shrinking import shrink as shrink_in

    wish = Wish(memory, slower, seconds, race_seconds, search, budget)
    options = Options.of(None, {**keywords, "cost": "analytic"})
    with Context(options, output=output, on_stage=on_stage, stop=stop) as context:
        return shrink_in(plain_model(model)[0], context, wish)


def verify(
    original: str | os.PathLike[str] | bytes | ModelProto,
    other: str | os.PathLike[str] | bytes | ModelProto,
    *,
    seed: int = 0,
    threads: int = 1,
    dims: Mapping[str, int | str | tuple[int, int, int]] | None = None,
    shapes: Mapping[str, str] | None = None,
    input_data: Any = None,
    runtime: str = "onnxruntime",
    provider: str | None = None,
) -> Verification:
    """Does ``other`` compute what ``original`` computes? Both are run on the same inputs, and their outputs compared.
    Each may be of any kind that :func:`optimize` takes.

    The inputs are ``input_data`` (as for :func:`optimize`), then random ones by ``seed``; random integers lie in the
    ranges that the original's graph implies. ``dims`` and ``shapes``: sizes of open dimensions, as for
    :func:`optimize`; where three are given, the outputs are compared at all three. The answer holds the largest
    difference of each output and the input that shows it; ``passed`` says whether roundings explain them all. Where no
    output can show a mistake, as where none of its values is finite, it is not passed but ``undecided``.

    Raises :class:`rlflow.errors.ModelError` for what is no model, :class:`RuntimeRefused` where the original does not
    run, :class:`UsageError` for inputs that do not fit and for dimensions that the original does not have.
    """
    from rlflow.equivalence import sizes
    from rlflow.frontends import load_model
    from rlflow.frontends.model_kinds import plain_model

    check_whole(seed, "The seed", 0)
    with ExitStack() as stack:
        place = Deployment.of(threads, runtime, provider, None)
        reference = stack.enter_context(open_worker(threads))
        deployed = reference if place.is_default else stack.enter_context(place.worker())
        original, other = plain_model(original)[0], plain_model(other)[0]
        imported = load_model(original)
        load_model(other)  # what is no model is refused as such, not called different
        source, theirs, run = source_of(imported, original), as_source(other), runner(reference, deployed)
        extents = sizes.given(reference.interface(source).inputs, dims, shapes)
        inputs = Inputs.of(reference, source, imported.graph, sizes.usual(extents), input_data, seed)
        found: Verification = verified(run, inputs, source, theirs, seed)
        said = list(inputs.notes)
        for end, bound in sizes.ends(extents).items():
            if not found.passed:
                break
            every = {**inputs.sizes.values, **bound}
            fed = Inputs.of(reference, source, imported.graph, every, None, seed, every)
            there = verified(run, fed, source, theirs, seed)
            at = sizes.told(end, bound)
            told = f"The outputs were compared at {at}, too."
            said.append(told if there.passed else f"They differ at {at}; at the usual sizes they agree.")
            found = found if there.passed else there
    if found.passed and found.vacuous:
        found = replace(found, passed=False, undecided=True)
    return replace(found, notes=[*said, *found.notes])


def replay(
    model: str | os.PathLike[str] | bytes | ModelProto,
    trace: Iterable[Any],
    *,
    rules: Any = None,
    keep_opset: bool = False,
) -> ModelProto:
    """Apply a trace (as in a report's ``trace``) to the model that it was recorded on; returns the rewritten model.

    ``keep_opset``: as for :func:`optimize`.
    """
    from rlflow.frontends import load_model, newest_opset, save_model
    from rlflow.frontends.lowering import faster_opset

    imported = load_model(model, newest_opset=newest_opset())
    library = with_algorithms() if rules is None else load_library(rules)
    older = None if keep_opset else faster_opset(imported)
    return save_model(imported, _search.replay(imported.graph, library, trace), opset=older)
