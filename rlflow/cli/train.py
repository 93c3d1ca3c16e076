"""``rlflow train``: teach an agent which rewrites pay, on models or on graphs of the zoo."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from rlflow.cli.common import WORKERS, ErrorGroup, console
from rlflow.cli.sections import SectionedCommand
from rlflow.errors import UsageError
from rlflow.specs import pair

_Option = Callable[[Any], Any]
_CHOICE = re.compile(r"\{([^{}]*)\}")
_RESULT = ("out", "logs", "quiet")
_XRLFLOW = {
    "What it learns on": ("models", "held_out", "rules", "cost"),
    "Learning": ("steps", "preset", "options", "patience", "evaluate_every", "seed", "device", "start", "resume"),
    "Who works": ("workers",),
    "Result": _RESULT,
}
_WORLD_MODEL = {
    "What it learns on": ("models", "rules", "cost"),
    "Learning": ("expansions", "rounds", "preset", "options", "capacity", "seed", "resume"),
    "Result": _RESULT,
}
_LEVIN = {
    "What it learns on": ("models", "rules", "cost"),
    "Learning": ("rounds", "options", "resume"),
    "Result": _RESULT,
}
_GO = {
    "What it learns on": ("families", "held_out", "tasks"),
    "Learning": ("updates", "judge_every", "options", "seed", "start", "resume"),
    "Result": _RESULT,
}


@click.group(cls=ErrorGroup)
def train() -> None:
    """Train an agent."""


def _require_torch() -> None:
    from rlflow import nn

    reason = nn.available()
    if reason is not None:
        raise UsageError(f"Nothing can be trained here: {reason}.")


def _options(*own: _Option, drawn: bool = True) -> _Option:
    """The options that every training has, and ``own``, those of one. ``drawn``: it has a seed."""
    shared = (
        click.option(
            "--models",
            multiple=True,
            required=True,
            metavar="MODEL",
            help="A zoo model with options (squeezenet1.1, 'bert-base?seq={64,128}&layers=2') or an ONNX file; "
            "repeatable. Braces stand for several models.",
        ),
        click.option(
            "--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The checkpoint to write."
        ),
        click.option("--set", "options", multiple=True, metavar="NAME=VALUE", help="One hyper-parameter; repeatable."),
        click.option("--cost", default="analytic", show_default=True, help="Cost model that prices graphs."),
        click.option("--rules", multiple=True, metavar="FAMILY", help="Families of rules; repeatable. [default: all]"),
        click.option(
            "--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder of JSON lines and TensorBoard."
        ),
        click.option("-q", "--quiet", is_flag=True, help="Only say how it ended."),
    )
    seed = click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of everything random."
    )

    def decorate(command: Any) -> Any:
        for option in reversed((*shared, *((seed,) if drawn else ()), *own)):
            command = option(command)
        return command

    return decorate


@train.command(cls=SectionedCommand, sections=_XRLFLOW)
@_options(
    click.option(
        "--held-out", "held_out", multiple=True, metavar="MODEL", help="A model to judge the agent by; repeatable."
    ),
    click.option("--steps", default=20_000, show_default=True, help="Environment steps in all."),
    click.option("--preset", default="tuned", show_default=True, help="Hyper-parameters: paper, tuned or taught."),
    WORKERS,
    click.option("--evaluate-every", default=10, show_default=True, help="Updates between evaluations."),
    click.option("--patience", default=0, show_default=True, help="Evaluations without a better score before the end."),
    click.option("--device", default="cpu", show_default=True, help="Where it learns: cpu or cuda."),
    click.option("--start", type=click.Path(dir_okay=False), help="A checkpoint whose weights to begin with."),
    click.option("--resume", is_flag=True, help="Go on where OUT.last ended."),
)
def xrlflow(**given: Any) -> None:
    """X-RLflow: proximal policy optimisation over a graph neural network. Ctrl-C keeps what was learnt."""
    _require_torch()
    from rlflow.agents.learned import one_thread
    from rlflow.search import InterruptGuard, StopToken

    trainer = _trainer(given)

    out = console(stderr=True)
    stop = StopToken()

    def report(figures: dict[str, Any]) -> None:
        if not given["quiet"]:
            out.print(_line(trainer.progress.steps, given["steps"], figures))

    with InterruptGuard(stop), one_thread():
        checkpoint = trainer.train(given["steps"], on_update=report, stop=stop)
    card = checkpoint.card
    score = "not evaluated" if card["score"] is None else f"mean log gain {card['score']:.4f} by greedy choices"
    click.echo(
        f"{'Interrupted' if stop.stopped else 'Trained'}: {card['steps']} steps in {card['episodes']} episodes, "
        f"{card['seconds']:.0f} s; {score}. Written to {given['out']}."
    )


@train.command(cls=SectionedCommand, sections=_WORLD_MODEL)
@_options(
    click.option("--expansions", default=2_000, show_default=True, help="Graphs that are really opened, in all."),
    click.option("--rounds", default=0, show_default=True, help="How many rounds at most; 0: any number."),
    click.option("--preset", default="tuned", show_default=True, help="Hyper-parameters: paper, tuned, cma or graph."),
    click.option("--capacity", default=6000, show_default=True, help="Graphs of the replay buffer in memory."),
    click.option("--resume", is_flag=True, help="Go on where OUT.last and OUT.replay ended."),
)
def worldmodel(**given: Any) -> None:
    """RLFlow: a world model, and who acts by it: collect, fit, dream, act, again. Ctrl-C keeps what was learnt."""
    _require_torch()
    from rlflow.agents.learned import one_thread
    from rlflow.search import InterruptGuard, StopToken

    trainer, out, stop = _world_trainer(given), console(stderr=True), StopToken()

    def report(figures: dict[str, Any]) -> None:
        if not given["quiet"]:
            out.print(_round_line(given["expansions"], figures))

    with InterruptGuard(stop), one_thread():
        checkpoint = trainer.train(given["expansions"], given["rounds"] or 1 << 30, on_round=report, stop=stop)
    card = checkpoint.card
    score = "not judged" if card["score"] is None else f"mean log gain {card['score']:.4f} by its own choices"
    click.echo(
        f"{'Interrupted' if stop.stopped else 'Trained'}: {card['expansions']} real expansions, "
        f"{card['measurements']} measurements, {card['rounds']} rounds, {card['seconds']:.0f} s; {score}. "
        f"Written to {given['out']}."
    )


@train.command(cls=SectionedCommand, sections=_LEVIN)
@_options(
    click.option("--rounds", default=2, show_default=True, type=click.IntRange(min=1), help="Rounds in all."),
    click.option("--resume", is_flag=True, help="Go on where OUT.last ended."),
    drawn=False,
)
def levin(**given: Any) -> None:
    """Levin: search, learn which chains of rewrites pay, search again. Needs no torch. Ctrl-C keeps what was learnt."""
    from rlflow.agents.chain_lessons.chain_training import LevinTraining
    from rlflow.search import InterruptGuard, StopToken
    from rlflow.search.levin.trained import LevinConfig

    config = LevinConfig().with_options(dict(map(_pair, given["options"])))
    specs = _specs(given, given["models"])
    training = LevinTraining(specs, config, out=given["out"], logs=given["logs"], resume=given["resume"])
    out, stop = console(stderr=True), StopToken()

    def report(figures: dict[str, Any]) -> None:
        if not given["quiet"]:
            out.print(
                f"round {figures['round']}  {figures['model']:<26} gain {figures['gain']:.4f}  chains "
                f"{figures['chains']:>3}  {figures['seconds']:.0f} s"
            )

    with InterruptGuard(stop):
        card = training.train(given["rounds"], on_lesson=report, stop=stop).card
    told = training.progress
    click.echo(
        f"{'Interrupted' if stop.stopped else 'Trained'}: {told.rounds} rounds, {card['expansions']} graphs opened, "
        f"{card['chains']} chains learnt from, {told.seconds:.0f} s. Written to {given['out']}."
    )


@train.command(cls=SectionedCommand, sections=_GO)
@click.option(
    "--families", multiple=True, metavar="FAMILY",
    help="Families of graphs to learn on; repeatable. [default: all that are not held out]",
)  # fmt: skip
@click.option(
    "--held-out", multiple=True, metavar="FAMILY",
    help="A family to learn nothing from; the card says what the policy does there. Repeatable.",
)  # fmt: skip
@click.option(
    "--tasks", multiple=True, metavar="TASK",
    help="What to decide: placement, ordering or fusing; repeatable. [default: all]",
)
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The checkpoint to write.")
@click.option("--updates", default=10, show_default=True, help="Updates in all, after the imitation.")
@click.option("--judge-every", default=10, show_default=True, help="Updates between evaluations.")
@click.option("--set", "options", multiple=True, metavar="NAME=VALUE", help="One hyper-parameter; repeatable.")
@click.option("--start", type=click.Path(dir_okay=False), help="A checkpoint whose weights to begin with.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of everything random.")
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Folder of JSON lines and TensorBoard.")
@click.option("-q", "--quiet", is_flag=True, help="Only say how it ended.")
@click.option("--resume", is_flag=True, help="Go on where OUT.last ended.")
def go(**given: Any) -> None:
    """GO: one policy for placement, order and fusion of whole graphs, on drawn ones. Ctrl-C keeps what was learnt."""
    _require_torch()
    from rlflow.agents.go.config import TASKS, GoConfig
    from rlflow.agents.go.teaching import GoTraining
    from rlflow.agents.go.trained import GoCheckpoint
    from rlflow.placement.sketches import FAMILIES
    from rlflow.search import InterruptGuard, StopToken

    training = GoTraining(
        given["families"] or [one for one in FAMILIES if one not in given["held_out"]],
        GoConfig().with_options(dict(map(_pair, given["options"]))),
        out=given["out"],
        held_out=given["held_out"],
        tasks=given["tasks"] or TASKS,
        seed=given["seed"],
        start=GoCheckpoint.load(given["start"]) if given["start"] else None,
        resume=given["resume"],
    )
    out, stop = console(stderr=True), StopToken()

    def report(figures: dict[str, Any]) -> None:
        if not given["quiet"]:
            out.print(_go_line(given["updates"], figures))

    with InterruptGuard(stop):
        card = training.train(
            given["updates"], judge_every=given["judge_every"], logs=given["logs"], on_update=report, stop=stop
        ).card
    click.echo(
        f"{'Interrupted' if stop.stopped else 'Trained'}: {card['updates']} updates, {card['evaluations']} evaluations"
        f", {card['seconds']:.0f} s; mean log gain over usual decisions {card['score']:.4f}. Written to {given['out']}."
    )


def _go_line(wanted: int, figures: dict[str, Any]) -> str:
    judged = f"  score {figures['score']:.4f}" if "score" in figures else ""
    if "imitated" in figures:
        return f"pass {figures['imitated']:>3}  loss {figures['loss']:.4f}  {figures['seconds']:.0f} s{judged}"
    return (
        f"{min(1.0, figures['update'] / wanted):4.0%}  {figures['graph']:<16} reward {figures['reward']:.4f}"
        f"  best {figures['best']:.4f}  entropy {figures['entropy']:.3f}  kl {figures['kl']:.4f}"
        f"  {figures['seconds']:.0f} s{judged}"
    )


def _world_trainer(given: dict[str, Any]) -> Any:
    from rlflow.agents.rlflow.config import preset
    from rlflow.agents.rlflow.train import WorldTrainer

    config = preset(given["preset"]).with_options(dict(map(_pair, given["options"])))
    return WorldTrainer(
        _specs(given, given["models"]),
        config,
        out=given["out"],
        seed=given["seed"],
        logs=given["logs"],
        resume=given["resume"],
        capacity=given["capacity"],
    )


def _round_line(wanted: int, figures: dict[str, Any]) -> str:
    score = "" if figures["score"] is None else f"  score {figures['score']:.4f}"
    dreamt = f"  dreamt {figures['dream_return']:.4f}" if "dream_return" in figures else ""
    return (
        f"{min(1.0, figures['expansions'] / wanted):4.0%}  round {figures['rounds']}  {figures['expansions']:>6} opened"
        f"{dreamt}  model loss {figures.get('model_loss', 0.0):.3f}  {figures['seconds']:.0f} s{score}"
    )


def _trainer(given: dict[str, Any]) -> Any:
    from rlflow.agents.xrlflow.config import preset
    from rlflow.agents.xrlflow.ppo import Trainer
    from rlflow.agents.xrlflow.trained import PolicyCheckpoint

    config = preset(given["preset"]).with_options(dict(map(_pair, given["options"])))

    return Trainer(
        _specs(given, given["models"]),
        config,
        out=given["out"],
        held_out=_specs(given, given["held_out"]),
        seed=given["seed"],
        workers=given["workers"],
        logs=given["logs"],
        evaluate_every=given["evaluate_every"],
        patience=given["patience"],
        device=given["device"],
        resume=given["resume"],
        start=PolicyCheckpoint.load(given["start"]) if given["start"] else None,
    )


def _specs(given: dict[str, Any], models: tuple[str, ...]) -> list[Any]:
    from rlflow.env.spec import ProblemSpec
    from rlflow.files import check_is_not_read

    names = [name for model in models for name in expand(model)]
    for name in names:
        check_is_not_read(given["out"], name)
    return [ProblemSpec.of(name, given["rules"] or None, given["cost"]) for name in names]


def expand(model: str) -> list[str]:
    """``a?x={1,2}`` is ``a?x=1`` and ``a?x=2``; several braces are all their combinations."""
    choices = [found.split(",") for found in _CHOICE.findall(model)]
    parts = _CHOICE.split(model)[::2]
    return [
        "".join(itertools.chain.from_iterable(itertools.zip_longest(parts, chosen, fillvalue="")))
        for chosen in itertools.product(*choices)
    ]


def _pair(text: str) -> tuple[str, str]:
    found = pair(text)
    if found is None:
        raise UsageError(f"The option --set {text} has no value; expected a name and a value, as in --set lr=1e-3.")
    return found


def _line(steps: int, wanted: int, figures: dict[str, Any]) -> str:
    judged = f"  score {figures['score']:.4f}" if "score" in figures else ""
    return (
        f"{min(1.0, steps / wanted):4.0%}  {steps:>7} steps  gain {figures['gain']:.4f}  length {figures['length']:.0f}"
        f"  entropy {figures['entropy']:.2f}  kl {figures['kl']:.4f}  {figures['seconds']:.0f} s{judged}"
    )
