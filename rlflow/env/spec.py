"""What an environment is about, as values that a file or another process can hold: model, rules, prices; and states."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from rlflow import price as _price
from rlflow.errors import ModelError, UsageError
from rlflow.files import parse_json
from rlflow.graph import Graph
from rlflow.rewrite import Rule, RuleLibrary, RuleSet
from rlflow.search import Budget, Problem, TraceStep, read_trace
from rlflow.specs import whole_number

_TEXT = "text:"
#: The environment's problems end by horizon, never by budget.
ENDLESS = Budget(expansions=1 << 60)


@dataclass(frozen=True)
class ProblemSpec:
    """A problem that any process can set up.

    ``model``: a zoo model with options (``"bert-base?seq=64&batch=2"``), the path of an ONNX file, or a graph's text
    behind ``text:``. ``rules``: family names, rules, or ``None`` for all that ship. ``cost``: name of a cost model,
    with ``cost_options``.
    """

    model: str
    rules: tuple[str, ...] | tuple[Rule, ...] | None = None
    cost: str = "analytic"
    cost_options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(
        cls,
        model: str | Graph,
        rules: Any = None,
        cost: str = "analytic",
        cost_options: Mapping[str, Any] | None = None,
    ) -> ProblemSpec:
        """As the class, from a graph or a list of rules too."""
        text = model if isinstance(model, str) else _TEXT + model.text()
        if isinstance(rules, RuleLibrary):
            rules = list(rules.values())
        return cls(text, None if rules is None else tuple(rules), cost, tuple(sorted(dict(cost_options or {}).items())))

    @property
    def title(self) -> str:
        """The model in a few words."""
        return self.model if not self.model.startswith(_TEXT) else f"graph {Graph.parse(self.model[5:]).digest[:8]}"

    def load(self, weights: bool = False) -> OpenProblem:
        """Read the model and compile the rules. ``weights``: whether zoo models get theirs, as timing whole models
        needs; searching does not.

        Raises :class:`UsageError` for unknown names, :class:`ModelError` for a file that cannot be used.
        """
        ruleset = _ruleset(self.rules)
        prices = _price.make(self.cost, **dict(self.cost_options))
        reason = prices.available()
        if reason is not None:
            raise UsageError(f"The cost model {self.cost!r} cannot be used here: {reason}")
        if self.model.startswith(_TEXT):
            return OpenProblem(self, Graph.parse(self.model[len(_TEXT) :]), ruleset, prices)
        imported = _imported(self.model, weights)
        return OpenProblem(self, imported.graph, ruleset, prices, imported)


@dataclass
class OpenProblem:
    """A spec with everything opened. ``imported`` is ``None`` for a graph given as text."""

    spec: ProblemSpec
    graph: Graph
    ruleset: RuleSet
    cost_model: Any
    imported: Any = field(default=None, repr=False)

    def problem(self, budget: Budget | str = ENDLESS, **options: Any) -> Problem:
        """A fresh problem over it; ``options`` are those of :class:`rlflow.search.Problem`. Macro moves are offered
        only where they are asked for: shipped checkpoints were trained without.
        """
        return Problem(self.graph, self.ruleset, self.cost_model, budget, **{"macros": False, **options})


@dataclass(frozen=True)
class RewriteState:
    """Where an environment is: the model and the rewrites so far. Replays in any process, to the same ``digest``."""

    model: str
    trace: tuple[TraceStep, ...] = ()
    digest: str = ""

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(
            {"model": self.model, "digest": self.digest, "trace": [step.to_dict() for step in self.trace]}
        )

    @classmethod
    def from_json(cls, text: str) -> RewriteState:
        """The reverse; raises :class:`UsageError` where the text is something else."""
        try:
            plain = parse_json(text)
            return cls(str(plain["model"]), read_trace(plain["trace"]), str(plain.get("digest", "")))
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"A state of the environment cannot be read from {text[:60]!r}; expected JSON with model and trace."
            ) from error


def _ruleset(rules: Sequence[Any] | None) -> RuleSet:
    from rlflow.rewrite import compiled
    from rlflow.synthesis import load_rules

    if rules is None or all(isinstance(item, str) for item in rules):
        return compiled(load_rules(families=None if rules is None else [str(item) for item in rules]))
    return compiled(list(rules))


def _imported(model: str, weights: bool) -> Any:
    from rlflow import zoo
    from rlflow.frontends import load_model

    name, _, query = model.partition("?")
    if name in zoo.names():
        options: dict[str, Any] = {key: _number(value) for key, value in parse_qsl(query)}
        imported = load_model((zoo.build if weights else zoo.outline)(name, **options))
    elif "/" not in model and not model.endswith(".onnx"):
        zoo.entry(name)  # says which names are near
        raise AssertionError("unreachable")
    else:
        imported = load_model(model)
    if imported.passthrough is not None:
        raise ModelError(f"The model {model} cannot be rewritten: {imported.passthrough}")
    return imported


def _number(text: str) -> int | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    number = whole_number(text.removeprefix("-"))
    return text if number is None else -number if text.startswith("-") else number
