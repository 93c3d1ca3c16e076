"""The façade: one call from a model to a faster one (the stages: ``pipeline.py``), and its smaller companions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rlflow import search as _search
from rlflow.deployment import Deployment, Inputs, as_source, open_worker, runner, source_of, verified
from rlflow.errors import UsageError
from rlflow.files import check_output
from rlflow.library import load_library, within
from rlflow.pipeline import OptimizeResult, Pipeline
from rlflow.report import Stages
from rlflow.search import Budget, Progress, StopToken

if TYPE_CHECKING:
    from onnx import ModelProto

    from rlflow.cost.command import DeviceCommand

__all__ = ["OptimizeResult", "compare", "optimize", "replay"]


def optimize(
    model: str | os.PathLike[str] | bytes | ModelProto,
    *,
    output: str | os.PathLike[str] | None = None,
    search: str | _search.Strategy = "backtracking",
    cost: str | Any = "onnxruntime",
    budget: str | Budget = "60s",
    patience: str | int | None = "auto",
    fresh: bool = False,
    alpha: float | None = None,
    train_budget: str | None = None,
    seed: int = 0,
    threads: int = 1,
    dims: Mapping[str, int] | None = None,
    freeze: Mapping[str, int] | None = None,
    input_data: Any = None,
    rules: Any = None,
    numerics: str | None = None,
    verify: bool = True,
    keep_initializer_inputs: bool = False,
    gate_seconds: float | None = None,
    profile_rules: bool = False,
    runtime: str = "onnxruntime",
    provider: str | None = None,
    measure: str = "eager",
    measure_cmd: str | DeviceCommand | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
    stop: StopToken | None = None,
) -> OptimizeResult:
    """Search for an equivalent faster model, confirm it by the clock and by its outputs, and return it with a report.

    ``search`` and ``cost`` are names with options (``"backtracking:alpha=1.1"``) or objects. ``budget``: ``"60s"``,
    ``"500c"`` candidates, ``"50x"`` expansions, ``"20m"`` measurements. ``patience``: expansions without a worthwhile
    gain after which the search ends although there is budget left, ``"off"``, or ``"auto"``: the strategy's own
    (3000 for backtracking) where the budget is one of seconds. ``fresh``: search again, and compare in full, whatever
    earlier runs of the same found and kept beside the prices. ``train_budget``: steps (``"2000"``) or seconds
    (``"60s"``) for which a learned strategy is first trained on the model, beside the budget. ``dims`` binds symbolic
    dimensions for measuring only, ``freeze`` for good. ``input_data``: arrays by input name, or the path of a ``.npz``
    file, to verify on besides random inputs. ``rules``: a rule library, or files and family names (default: everything
    that ships).
    ``numerics``: the loosest class of rounding that a rule may have, "exact" (results the same bit for bit),
    "reassociates" or "unstable" (default: no limit).
    ``runtime`` (``onnxruntime``, ``openvino``, ``cudnn``, ``torch``, or ``gpu`` for the best of these on a GPU),
    ``provider`` (of ONNX Runtime) or ``measure_cmd`` (a command that
    prints milliseconds, see :class:`rlflow.cost.command.DeviceCommand`) say where the model will run: the final
    comparison and the costs that use a clock are timed there. ``measure="lazy"``: regions like measured ones are priced
    by interpolation during the search.
    ``output``: file to write; where nothing is gained it receives the model as it came. ``profile_rules``: the report
    says what each rule took. ``on_progress`` is told about the search five times a second, ``on_stage`` what happens
    next. Ctrl-C ends the search with the best so far.

    Raises :class:`rlflow.errors.UsageError` (also :class:`BudgetError`), :class:`ModelError`, :class:`CostError`,
    :class:`OutputError`, and :class:`VerificationFailed` where the outputs differ; then nothing is written.
    """
    strategy, limits = _strategy(search, alpha, train_budget), Budget.parse(budget)
    run = Pipeline(
        strategy=strategy,
        budget=limits,
        patience=_search.patience_of(patience, limits, getattr(strategy, "patience_by_default", None)),
        fresh=fresh,
        cost=cost,
        seed=int(seed),
        threads=int(threads),
        dims=dict(dims or {}),
        freeze=dict(freeze or {}),
        input_data=input_data,
        rules=within(rules, numerics),
        verify=verify,
        keep_initializer_inputs=keep_initializer_inputs,
        gate_seconds=gate_seconds,
        profile_rules=profile_rules,
        place=Deployment.priced_by(cost, int(threads), runtime, provider, measure_cmd),
        measure=measure,
        on_progress=on_progress,
        on_stage=Stages(on_stage),
        stop=stop or StopToken(),
        output=None if output is None else check_output(output, model),
    )
    with run:
        return run.execute(model)


def compare(
    original: str | os.PathLike[str] | bytes | ModelProto,
    other: str | os.PathLike[str] | bytes | ModelProto,
    *,
    seed: int = 0,
    threads: int = 1,
    dims: Mapping[str, int] | None = None,
    input_data: Any = None,
    runtime: str = "onnxruntime",
    provider: str | None = None,
) -> Any:
    """Run two models on the same inputs and compare their outputs; returns :class:`rlflow.verify.Verification`.

    Random integer inputs lie in the ranges that the original's graph implies.
    """
    from rlflow.frontends import load_model

    with ExitStack() as stack:
        place = Deployment.of(threads, runtime, provider, None)
        reference = stack.enter_context(open_worker(threads))
        deployed = reference if place.is_default else stack.enter_context(place.worker())
        imported = load_model(original)
        source = source_of(imported, original)
        inputs = Inputs.of(reference, source, imported.graph, dict(dims or {}), input_data, seed)
        return verified(runner(reference, deployed), inputs, source, as_source(other), seed)


def replay(
    model: str | os.PathLike[str] | bytes | ModelProto, trace: Iterable[Any], *, rules: Any = None
) -> ModelProto:
    """Apply a trace (as in a report's ``trace``) to the model that it was recorded on; returns the rewritten model."""
    from rlflow.frontends import load_model, save_model

    imported = load_model(model)
    return save_model(imported, _search.replay(imported.graph, load_library(rules), trace))


def _strategy(spec: str | _search.Strategy, alpha: float | None, training: str | None) -> _search.Strategy:
    try:
        return _search.make(spec, alpha=alpha, train=training)
    except UsageError as error:
        for name, option, given in (("alpha", "--alpha", alpha), ("train", "--train-budget", training)):
            if given is not None and f"has no option {name!r}" in str(error):
                raise UsageError(f"{error} Leave out {option} for this strategy.") from error
        raise
