"""Examples for rule files: a small graph in which a rule fires, and a near miss in which it does not.

A near miss is a graph that has the rule's source term in it, but not its conditions (or not its attributes).
"""

from __future__ import annotations

import random
import re

from rlflow import _core
from rlflow.rewrite import Rule, explain
from rlflow.synthesis.field import key_of
from rlflow.synthesis.hints import hints_of
from rlflow.synthesis.sampling import draw_sample

_TRIES = 4000
_ENOUGH = 40


def plain_text(graph: _core.Graph) -> str:
    """The graph's text without the digests of constants, which then are what their names and types say."""
    return re.sub(r" @[0-9a-f]{32}", "", graph.text()).strip()


def _score(graph: _core.Graph) -> float:
    """Small graphs first; those with many extents of 1 or unusual types last."""
    score = 20.0 * len(graph.outputs())
    for n in graph.order():
        score += 0 if graph.dtype(graph.node_outputs(n)[0]) in (1, 7, 9) else 100
        shape = graph.shape(graph.node_outputs(n)[0]) or []
        count = 1
        for d in shape:
            count *= d
            score += 6 if d == 1 else 0
        score += 10 + count * 0.2
    return score


def _plain(graph: _core.Graph) -> bool:
    dtypes = {graph.dtype(v) for n in graph.order() for v in graph.node_outputs(n)}
    concrete = all(
        isinstance(d, int) and d for n in graph.order() for v in graph.node_outputs(n) for d in graph.shape(v) or []
    )
    return concrete and 16 not in dtypes


def _misses(rule: Rule, graph: _core.Graph) -> float:
    """How good a near miss: best is one that a condition of the rule's own decides."""
    reasons = " ".join(explain(graph, rule))
    if "fires (" in reasons:
        return -1
    if "the condition" in reasons:
        return 1 if "not constant($0)" in reasons else 2
    return 0


def find_examples(rule: Rule, seed: int = 0) -> tuple[str | None, str | None]:
    """A graph that fires and one that does not, in text form; ``None`` where none was found. Deterministic."""
    hints = hints_of(rule)
    ruleset = _core.RuleSet([rule.core])
    fires: list[tuple[float, str]] = []
    silent: list[tuple[float, float, str]] = []
    for k in range(_TRIES):
        if len(fires) >= _ENOUGH and len(silent) >= _ENOUGH:
            break
        sample = draw_sample(hints, random.Random(key_of("example", seed, rule.digest, k)))
        if sample is None or sample.symbols or not _plain(sample.graph):
            continue
        text = plain_text(sample.graph)
        graph = _core.Graph.parse(text)
        if len(_core.State(graph, ruleset).moves()):
            fires.append((_score(graph), text))
        elif _misses(rule, graph) >= 0:
            silent.append((-_misses(rule, graph), _score(graph), text))
    if not fires:
        return None, min(silent)[2] if silent else None
    shown = min(fires)[1]
    return shown, min(silent)[2] if silent else of_constants(shown, ruleset)


def of_constants(fires: str, ruleset: _core.RuleSet) -> str | None:
    """The near miss of a rule without conditions: the same graph of constants, which is folded and not rewritten."""
    text = fires.replace("= input", "= const")
    return None if len(_core.State(_core.Graph.parse(text), ruleset).moves()) else text
