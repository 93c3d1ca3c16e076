"""``rlflow search``: the strategies, and a search alone, without timing, verification or a written model."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from rlflow.cli.common import NameChoice, VerbGroup, console, parse_dims, show_rows, with_egraph_out
from rlflow.cli.json_option import emit_json, in_json, json_option
from rlflow.cli.model_files import MODEL
from rlflow.cli.outputs import check_outputs
from rlflow.cli.sections import SectionedCommand
from rlflow.errors import UsageError

if TYPE_CHECKING:
    from rlflow.search import Budget, Problem, Result, Statistics


@click.group(cls=VerbGroup)
def search() -> None:
    """The strategies that choose rewrites: list them with their options, run one on a model."""


@search.command("list")
@json_option()
def list_strategies(json_file: str | None) -> None:
    """List the strategies, their options and the defaults."""
    from rlflow.search import catalogue

    show_rows(catalogue(), json_file)


_SECTIONS = {
    "Search": ("spec", "cost", "budget", "seed", "rules", "workers"),
    "Prices": ("threads", "dims"),
    "Checkpoints": ("checkpoint", "resume"),
    "Result": ("stats", "json_file", "egraph_out", "quiet"),
}  # fmt: skip


@search.command("run", cls=SectionedCommand, sections=_SECTIONS)
@click.argument("model", type=MODEL)
@click.option("--search", "spec", default="backtracking", show_default=True, help="Strategy, with options.")
@click.option("--cost", default="analytic", show_default=True, help="Cost model: analytic or onnxruntime.")
@click.option("--budget", default="60s", show_default=True, help="60s, 5m, 500c or 50x; 20meas where --cost measures.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of everything random.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Threads of the runtime.")
@click.option("--dim", "dims", multiple=True, metavar="N=1", help="Size of an open dimension, for pricing only.")
@click.option("--rules", multiple=True, metavar="FILE|FAMILY", help="Use these rules instead of all that ship.")
@click.option("--stats", is_flag=True, help="Show how often each rule matched, gained and won.")
@click.option("--checkpoint", metavar="FILE", help="Keep the search and its best graphs in FILE while it runs.")
@click.option("--resume", is_flag=True, help="Go on where the checkpoint was written; the budget comes on top.")
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes that work side by side."
)
@json_option("the result, trace and curve as JSON")
@click.option(
    "--egraph-out", metavar="FILE", help="Write the first e-graph of eqsat or tensat, as extraction-gym JSON."
)
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
def run(
    model: str,
    spec: str,
    cost: str,
    budget: str,
    seed: int,
    threads: int,
    dims: tuple[str, ...],
    rules: tuple[str, ...],
    stats: bool,
    checkpoint: str | None,
    resume: bool,
    workers: int,
    json_file: str | None,
    egraph_out: str | None,
    quiet: bool,
) -> None:
    """Search for a cheaper graph of MODEL by the cost model's figures alone; nothing is timed end to end or written."""
    from rlflow import price
    from rlflow import search as searching

    if resume and checkpoint is None:
        raise UsageError("--resume goes on from a checkpoint; say which with --checkpoint FILE.")
    if workers > 1 and (checkpoint is not None or stats):
        raise UsageError("--checkpoint and --stats follow one search; leave them out, or use one worker.")
    check_outputs({"--json": json_file, "--checkpoint": checkpoint, "--egraph-out": egraph_out}, [model, *rules])
    strategy, limits = with_egraph_out(spec, egraph_out, model), searching.Budget.parse(budget)
    with price.make(cost) as priced:
        limits.require_end(priced.measures)
    make_problem = functools.partial(_problem, model, cost, threads, parse_dims("--dim", dims), rules)
    if workers > 1:
        result, statistics = searching.solve_in_parallel(make_problem, strategy, limits, seed, workers), None
    else:
        result, statistics = _alone(make_problem(limits, seed), strategy, stats, checkpoint, resume, quiet)
    plain = result.to_dict() | {"strategy": searching.describe(strategy), "workers": workers}
    if statistics is not None:
        plain["statistics"] = statistics.to_dict(result.trace)
    if json_file is not None:
        emit_json(plain, json_file)
    if not quiet and json_file != "-":
        _print(result, statistics)


def _problem(
    model: str, cost: str, threads: int, dims: dict[str, int], rules: tuple[str, ...], budget: Budget, seed: int
) -> Problem:
    """The problem of a model file; also called in worker processes."""
    from rlflow import price
    from rlflow.equivalence.sizes import require_open
    from rlflow.frontends import load_model
    from rlflow.rulesets import load_library
    from rlflow.search import Problem

    imported = load_model(model)
    require_open(dims, [imported])
    library, pricer = load_library(list(rules) or None), price.make(cost, threads=threads, dims=dims)
    return Problem(imported.graph, library, pricer, budget, seed=seed)


def _alone(
    problem: Problem, strategy: Any, stats: bool, checkpoint: str | None, resume: bool, quiet: bool
) -> tuple[Result, Statistics | None]:
    from rlflow.cli.progress import reporter
    from rlflow.search import InterruptGuard, Statistics, generator, solve_resumably

    statistics = Statistics(problem.rule_names) if stats else None
    with reporter(quiet) as told, InterruptGuard(problem.stop):
        told.stage("searching")
        problem.events.listener, problem.observer = told.progress, statistics
        if checkpoint is None:
            return strategy.run(problem, generator(problem.seed)), statistics
        return solve_resumably(problem, strategy, checkpoint, resume=resume, rng=generator), statistics


def _print(result: Result, statistics: Statistics | None) -> None:
    change = 100.0 * (result.cost_after_ms / result.cost_before_ms - 1.0) if result.cost_before_ms else 0.0
    counts = result.counts
    steps = "no trace" if result.trace is None else f"{len(result.trace)} rewrites"
    click.echo(f"{result.cost_before_ms:.6g} ms -> {result.cost_after_ms:.6g} ms ({change:+.2f} %)")
    click.echo(
        f"{steps}; {counts.candidates} candidates, {counts.expansions} expansions, "
        f"{counts.measurements} measurements in {result.seconds:.1f} s ({result.stop_reason})"
    )
    if statistics is not None:
        from rlflow.report.tables import rule_statistics

        console().print(rule_statistics(statistics.to_dict(result.trace)))


def _decoders() -> list[str]:
    from rlflow.search.eqsat import DECODERS

    return DECODERS.names()


@search.command("extract")
@click.argument("egraph", metavar="EGRAPH")
@click.option(
    "--method",
    type=NameChoice(_decoders),
    default="greedy-dag",
    show_default=True,
    help="How to choose; ilp proves the optimum, or says how far it may be.",
)
@click.option(
    "--seconds", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Seconds that ilp may take."
)
@json_option("the choice as JSON, a node of every class that is needed")
def extract(egraph: str, method: str, seconds: float, json_file: str | None) -> None:
    """Choose the cheapest graph from EGRAPH, a file in the JSON of extraction-gym (--egraph-out writes such files)."""
    check_outputs({"--json": json_file}, [egraph])
    from rlflow.search import eqsat

    gym = eqsat.read_gym(egraph)
    found = eqsat.extract(gym.problem, method, seconds=seconds)
    needed = found.needed(gym.problem)

    def plain() -> dict[str, Any]:
        choice = {gym.classes[cls]: gym.names[int(found.choice[cls])] for cls in needed}
        return {"method": method, "status": found.status, "cost": found.cost, "bound": found.bound, "choices": choice}

    if in_json(json_file, plain):
        return
    click.echo(f"{len(gym.problem)} nodes in {gym.problem.classes} classes; {len(needed)} of them are needed")
    proof = "" if found.status == "heuristic" else f", gap {100 * found.gap:.2f} %"
    click.echo(f"cost {found.cost:.6g} by {method} ({found.status}{proof}) in {found.seconds:.1f} s")
