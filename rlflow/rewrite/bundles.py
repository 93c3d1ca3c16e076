"""Macro moves: a rule at every match of a region at once, or a bundle of rules, applied as one.

Some rewrites pay only where they are made everywhere: a product of rows as a convolution costs two transposes, and a
chain of such products costs two in all. A *bundle* names the rules that begin such a change (``seeds``) and those that
carry it through (``tidy``): they are applied around what the change made until none of them matches there any more.
Bundles are data, in ``bundles.json`` beside the rules.

A macro is nothing but its single steps. :meth:`Macros.run` returns them as rule names and match keys, which replay one
by one like those of any trace, and every one of them is a proved rule.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlflow._core import RuleSet, State
from rlflow.errors import RuleError
from rlflow.files import parse_json
from rlflow.rewrite.paths import substitutions_dir

#: A bundle takes at most so many steps for each seed, and so many besides: a set of rules that goes in circles ends.
STEPS_A_SEED, STEPS_BESIDES = 24, 48
_FILE = "bundles.json"


@dataclass(frozen=True)
class Bundle:
    """Rules that are applied together: ``seeds`` at every match, then ``tidy`` around what they made.

    ``consuming``: only where nobody else reads what a match replaces. Else the old node would stay beside the new one,
    and its work would be done twice. ``needs``: seeds of which one at least has to be there; empty: any will do.
    """

    name: str
    doc: str
    seeds: tuple[str, ...]
    tidy: tuple[str, ...]
    consuming: bool = False
    needs: tuple[str, ...] = ()


class Seed(NamedTuple):
    """A match: rule number, and the ids of the nodes that it matched."""

    rule: int
    nodes: tuple[int, ...]


class Applied(NamedTuple):
    """The state after a macro; its single steps, as rule names and match keys; the ids of all nodes they matched."""

    state: State
    steps: tuple[tuple[str, tuple[int, ...]], ...]
    touched: frozenset[int]


@dataclass(frozen=True)
class Plan:
    """A macro for one rule set. ``seeds``: rule numbers. ``tidy``: the rules that follow, compiled, and their numbers;
    ``None`` where none do. ``consuming``, ``needs``: as the bundle's. ``bundle``: whether it is one, and not a rule
    alone.
    """

    name: str
    seeds: frozenset[int]
    tidy: RuleSet | None = None
    numbers: tuple[int, ...] = ()
    consuming: bool = False
    needs: frozenset[int] = frozenset()

    @property
    def bundle(self) -> bool:
        return self.tidy is not None

    def begins(self, rules: Iterable[int]) -> bool:
        """Whether matches of these rules are enough to begin with."""
        return not self.needs or not self.needs.isdisjoint(rules)


class Macros:
    """The macros of a compiled rule set: ``plans`` of the bundles whose seeds are among its rules."""

    def __init__(self, ruleset: RuleSet, bundles: Sequence[Bundle] | None = None) -> None:
        self.names = list(ruleset.names)
        numbers = {name: number for number, name in enumerate(self.names)}
        self.plans: list[Plan] = []
        for bundle in read_bundles() if bundles is None else bundles:
            seeds = frozenset(numbers[name] for name in bundle.seeds if name in numbers)
            tidy = tuple(numbers[name] for name in bundle.tidy if name in numbers)
            needs = frozenset(numbers[name] for name in bundle.needs if name in numbers)
            if seeds and tidy and (needs or not bundle.needs):
                compiled = RuleSet([ruleset.rules[number] for number in tidy])
                self.plans.append(Plan(bundle.name, seeds, compiled, tidy, bundle.consuming, needs))

    def rule(self, number: int) -> Plan:
        """The plan of one rule, applied wherever it is told to."""
        return Plan(self.names[number], frozenset((number,)))

    def run(self, state: State, plan: Plan, seeds: Iterable[Seed], most: int = 1 << 30) -> Applied | None:
        """Apply ``plan`` at ``seeds``, those left out that no longer stand, in about ``most`` steps; ``None`` where
        there are fewer than two.
        """
        run = _Run(state, self.names, plan.consuming)
        for seed in seeds:
            run.take(seed.rule, seed.nodes)
        if run.steps and plan.tidy is not None:
            run.tidy(plan, min(STEPS_A_SEED * len(run.steps) + STEPS_BESIDES, most))
        if len(run.steps) < 2 or run.state.graph.digest == state.graph.digest:
            return None
        return Applied(run.state, tuple(run.steps), frozenset(run.touched))


class _Run:
    """A macro while it is applied; ``first``: the lowest id of a node that it made."""

    def __init__(self, state: State, names: Sequence[str], consuming: bool = False) -> None:
        self.state, self.names, self.first, self.consuming = state, names, state.graph.id_limit, consuming
        self.steps: list[tuple[str, tuple[int, ...]]] = []
        self.touched: set[int] = set()

    def take(self, rule: int, nodes: Sequence[int]) -> bool:
        """One step, where the nodes are still there and the rule still matches them."""
        graph = self.state.graph
        if not all(map(graph.alive, nodes)):
            return False
        found = self.state.take(rule, nodes)
        if found is None or (self.consuming and any(map(found[0].graph.alive, nodes))):
            return False
        self.state, key = found
        self.steps.append((self.names[rule], tuple(map(int, key))))
        self.touched.update(node for node in nodes if node < self.first)
        return True

    def tidy(self, plan: Plan, most: int) -> None:
        """Round after round of disjoint matches that touch what was made, until there is none; ``most`` steps."""
        seen = {self.state.graph.digest}
        while len(self.steps) < most and self._round(plan, most):
            if self.state.graph.digest in seen:
                return
            seen.add(self.state.graph.digest)

    def _round(self, plan: Plan, most: int) -> bool:
        raw = State(self.state.graph, plan.tidy).moves()  # type: ignore[arg-type]
        begins, touched, rules = np.asarray(raw.touched_begin), np.asarray(raw.touched), np.asarray(raw.rule)
        used: set[int] = set()
        before = len(self.steps)
        for i in range(len(raw)):
            nodes = touched[begins[i] : begins[i + 1]].tolist()
            if max(nodes) < self.first or not used.isdisjoint(nodes) or len(self.steps) >= most:
                continue
            if self.take(plan.numbers[int(rules[i])], nodes):
                used.update(nodes)
        return len(self.steps) > before


@functools.cache
def read_bundles() -> tuple[Bundle, ...]:
    """The bundles that ship with the package. Raises RuleError where their file is malformed."""
    return read_file(substitutions_dir() / _FILE)


def read_file(path: Path) -> tuple[Bundle, ...]:
    """The bundles of a file. Raises RuleError with the file and the reason where it is malformed."""
    try:
        data = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RuleError(f"the bundles cannot be read: {error}", str(path)) from error
    if not isinstance(data, dict) or not isinstance(data.get("bundles"), list):
        raise RuleError('expected an object with "bundles" (a list)', str(path), 1)
    groups = data.get("groups", {})
    return tuple(_read_bundle(entry, groups, str(path)) for entry in data["bundles"])


def _read_bundle(entry: Any, groups: Any, file: str) -> Bundle:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or set(entry) - {"name", "doc", "seeds", "tidy", "consuming", "needs"}:
        raise RuleError('a bundle has "name", "doc", "seeds", "tidy", "consuming", "needs" and no other field', file)
    if not isinstance(entry.get("consuming", False), bool):
        raise RuleError(f'"consuming" of the bundle {name!r} is neither true nor false', file)
    lists: dict[str, tuple[str, ...]] = {"needs": ()}
    for field in ("seeds", "tidy", *(["needs"] if "needs" in entry else [])):
        names = entry.get(field)
        if not isinstance(names, list) or not names or not all(isinstance(item, str) for item in names):
            raise RuleError(f'"{field}" of the bundle {name!r} is not a list of names', file)
        lists[field] = tuple(dict.fromkeys(rule for item in names for rule in groups.get(item, [item])))
    if strange := [rule for rule in lists["needs"] if rule not in lists["seeds"]]:
        raise RuleError(f'"needs" of the bundle {name!r} has {strange[0]!r}, which is no seed of it', file)
    return Bundle(name, str(entry.get("doc", "")), consuming=entry.get("consuming", False), **lists)
