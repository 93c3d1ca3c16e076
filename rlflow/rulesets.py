"""Which substitutions a caller means: all that ship, files, families; those of a numeric class, and what a model may
have: of an opset, and of domains that the user allows.
"""

from __future__ import annotations

import fnmatch
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlflow.errors import UsageError

if TYPE_CHECKING:
    from rlflow.graph import Graph

__all__ = [
    "ALGORITHMS",
    "TARGETS",
    "Allowed",
    "left_to_kernels",
    "load_library",
    "named_files",
    "narrowed",
    "with_algorithms",
    "within",
    "writable",
]

#: Families of algorithms inside operators, which only a clock can price.
ALGORITHMS = ("winograd",)
#: The family of operators that stand for many, of new opsets and of other domains, which only a clock can price.
TARGETS = ("targets",)
#: Rules that do with operators what a kernel of ours does better, and in whose place it cannot be used any more; and
#: those of which that is true where blocks hold the groups of all convolutions.
_KERNELS_OWN, _KERNELS_GROUPS = ("winograd-*", "strassen-*"), ("grouped-conv-in-pairs*", "grouped-conv-with-one-more*")
#: Channels of a group: those that the rules are for, at most, and those that a kernel takes.
_NARROW, _KERNELS_NARROW = 8, (2, 4, 8)

#: Rule files of other programs; everything else that is no family is a rule file of ours.
_FOREIGN = ".pb"


def load_library(rules: Any) -> Any:
    """The rule library for what a caller names: ``None`` (all that ships), a library, files, or family names.

    Rules of files that do not ship with the package are proved first (proofs are cached). TASO's ``.pb`` files are read
    as ``rlflow rules import`` does: what is true in them is used, and a :class:`ForeignRulesWarning` names the rest.
    """
    from rlflow.rewrite import RuleLibrary

    if isinstance(rules, RuleLibrary):
        return rules
    from rlflow.synthesis import load_rules

    items, files = _items(rules), named_files(rules)
    foreign = [item for item in files if _is_foreign(item)]
    paths = [item for item in files if not _is_foreign(item)]
    families = [str(item) for item in items if not _is_path(item)]
    ours = load_rules(paths or None, families=families or None) if paths or families or not foreign else {}
    if not foreign:
        return ours
    return RuleLibrary([*ours.values(), *(rule for path in foreign for rule in _true_rules(path))])


def _true_rules(path: Any) -> list[Any]:
    from rlflow.synthesis.importers import ForeignRulesWarning, read_foreign, use_foreign

    found = use_foreign(read_foreign(path), path)
    if not found.known and not found.new:
        remark = found.remark or "all of them change nothing."
        raise UsageError(f"While loading rules: no rule of {found.path} is of use here: {remark}")
    if found.remark is not None:
        warnings.warn(f"{found.remark} `rlflow rules import` lists them all.", ForeignRulesWarning, stacklevel=4)
    return [*found.known, *found.new]


def with_algorithms(*families: str) -> Any:
    """The rules that are loaded by default, and those of ``families`` (default: ``ALGORITHMS`` and ``TARGETS``)."""
    from rlflow.rewrite import RuleLibrary, load_rules

    more = load_rules(families=families or (*ALGORITHMS, *TARGETS))
    return RuleLibrary([*load_library(None).values(), *more.values()])


def named_files(rules: Any) -> list[Any]:
    """The files among what a caller names; none for a library."""
    return [item for item in _items(rules) if _is_path(item)]


def _items(rules: Any) -> list[Any]:
    from rlflow.rewrite import RuleLibrary

    if rules is None or isinstance(rules, RuleLibrary):
        return []
    return [rules] if isinstance(rules, (str, os.PathLike)) else list(rules)


def within(rules: Any, numerics: str | None) -> Any:
    return rules if numerics is None else load_library(rules).with_numerics(numerics)


def narrowed(rules: Any, only: Sequence[str], skip: Sequence[str]) -> Any:
    """``rules`` without those of ``skip``, and of ``only`` alone where it names some: names of rules, of families, or
    patterns with ``*``. Raises :class:`UsageError` for what names none, and where none is left.
    """
    if not only and not skip:
        return rules
    library = load_library(rules)
    wanted = set(library) if not only else {name for item in only for name in _matching(library, item)}
    left_out = {name for item in skip for name in _matching(library, item)}
    kept = [name for name in library if name in wanted - left_out]
    if not kept:
        raise UsageError("No rule is left: --skip-rule leaves out all that --only-rules, or the library, has.")
    return library.select(kept)


def left_to_kernels(library: Any, graph: Graph, block: int) -> Any:
    """``library`` without what a kernel of ours does better in this graph than its rules do with operators. ``block``:
    channels in a block of the runtime's here, 0 where it has none, and then kernels of blocks do nothing.
    """
    if not block:
        return library
    groups = _KERNELS_GROUPS if _kernels_take_groups(graph, block) else ()
    return library.select([name for name in library if not _is_one_of(name, (*_KERNELS_OWN, *groups))])


def _kernels_take_groups(graph: Graph, block: int) -> bool:
    """Whether blocks can hold all convolutions with narrow groups. Where they cannot, rules make others of some: what
    one of them pads, another one joins.
    """
    for node in graph.order():
        weights = graph.shape(graph.node_inputs(node)[1]) if graph.op(node) == "Conv" else None
        if not weights or not all(isinstance(extent, int) for extent in weights) or not 1 < weights[1] <= _NARROW:
            continue
        group = int((graph.attrs(node) or {})["group"])
        square = len(weights) == 4 and weights[0] == group * weights[1]
        if group > 1 and not (square and weights[1] in _KERNELS_NARROW and weights[0] % block == 0):
            return False
    return True


def _is_one_of(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _matching(library: Any, item: str) -> list[str]:
    from rlflow.specs import did_you_mean

    found = [name for name, rule in library.items() if item == rule.family or fnmatch.fnmatchcase(name, item)]
    if not found:
        near = did_you_mean(item, [*library, *library.families], "rlflow rules list")
        raise UsageError(f"No rule, and no family of rules, is called {item!r}. {near}")
    return found


def _is_foreign(item: Any) -> bool:
    return os.fspath(item).endswith(_FOREIGN)


def _is_path(item: Any) -> bool:
    return isinstance(item, os.PathLike) or os.sep in item or item.endswith((".json", _FOREIGN)) or os.path.exists(item)


@dataclass(frozen=True)
class Allowed:
    """What a written model may need: of the default domain no newer opset than this, and operators of these domains
    beside.
    """

    opset: int
    domains: frozenset[str] = frozenset()

    def needs(self, rule: Any) -> tuple[int, str]:
        """What a rule's results need beyond that: an opset (0: none) and a domain ("": none)."""
        from rlflow.frontends import operator_opset
        from rlflow.ops import asked_domain

        operators = rule.core.target_operators()
        asked = {op: asked_domain(op) for op in operators}
        newest = max((operator_opset(op) or 0 for op in operators if not asked[op]), default=0)
        domains = sorted(set(asked.values()) - self.domains - {""})
        return newest if newest > self.opset else 0, ", ".join(domains)


@dataclass(frozen=True)
class Writable:
    """``library``: the rules whose results may be written; ``others``: those that need more; ``notes``: what is said
    of those that need a newer opset. Of a domain that nobody allowed nothing is said where it would gain nothing.
    """

    library: Any
    others: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()


def writable(library: Any, allowed: Allowed) -> Writable:
    """The rules whose results a model may have that is allowed so much, and a note about the others."""
    needs = {name: allowed.needs(rule) for name, rule in library.items()}
    others = tuple(rule for name, rule in library.items() if any(needs[name]))
    if not others:
        return Writable(library)
    kept = library.select([name for name in library if not any(needs[name])])
    newer = sum(opset > 0 for opset, _ in needs.values())
    notes = []
    if newer:
        lacked = f"operators that opset {allowed.opset} lacks"
        notes.append(f"{newer} of {len(library)} rules need {lacked} and were left out.")
    return Writable(kept, others, tuple(notes))
