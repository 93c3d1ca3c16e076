"""Which rules of a library follow from its other rules in two steps.

For each rule, graphs are drawn in which it fires; what it makes of them is searched for with the other rules. A chain
that does it on every graph drawn counts. Tags are given so that no tagged rule is needed to derive another: the rules
without a tag are a basis, which a search may use instead of everything.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rlflow import _core
from rlflow.errors import GraphError
from rlflow.files import write_atomically
from rlflow.rewrite import Rule, RuleLibrary, compiled, load_rules
from rlflow.synthesis.derive import Chain, Folding, all_chains
from rlflow.synthesis.field import key_of
from rlflow.synthesis.hints import hints_of
from rlflow.synthesis.rule_files import rule_file_text
from rlflow.synthesis.sampling import draw_sample

STEPS = 2
SAMPLES = 24
_TRIES = 3000


def firings(rule: Rule, count: int = SAMPLES, seed: int = 0) -> list[tuple[_core.Graph, _core.Graph]]:
    """Graphs of different types in which a rule fires, and what it makes of them; up to ``count``, deterministic."""
    hints = hints_of(rule)
    rules = _core.RuleSet([rule.core])
    found: dict[str, tuple[_core.Graph, _core.Graph]] = {}
    for k in range(_TRIES):
        sample = draw_sample(hints, random.Random(key_of("redundancy", seed, rule.digest, k)))
        if sample is None or sample.symbols or _exposes_inner(rule, sample.graph):
            continue
        state = _core.State(sample.graph, rules, weight_limit_bytes=None)
        moves = state.moves()
        for i in range(min(len(moves), 1)):
            try:
                found.setdefault(sample.graph.digest, (sample.graph, state.child(i)))
            except GraphError:
                continue
        if len(found) >= count:
            break
    return list(found.values())


def _exposes_inner(rule: Rule, graph: _core.Graph) -> bool:
    """Whether the graph uses values inside the match elsewhere: a chain may then share what one step alone would
    compute twice."""
    if any(graph.users(v) for v in graph.outputs()):
        return True
    roots = {graph.producer(v) for v in graph.outputs()}
    return not rule.source[0].startswith("*") and len(roots) != len(rule.source)


def chains_of(rule: Rule, library: RuleLibrary, steps: int = STEPS, samples: int = SAMPLES) -> set[Chain]:
    """Chains of at most ``steps`` other rules of the library, each of which does on every graph drawn what the rule
    does; empty where there is none, or the rule never fired."""
    ruleset, folding = compiled(library), Folding()
    common: set[Chain] | None = None
    for source, target in firings(rule, samples):
        found = all_chains(source, target, ruleset, folding, steps, {rule.name})
        common = found if common is None else common & found
        if not common:
            return set()
    return common or set()


def tags(chains: dict[str, set[Chain]], order: Sequence[str]) -> dict[str, Chain]:
    """A chain for each rule that is redundant: one whose rules are all in the basis. ``order``: who is tagged first.

    A rule that a given tag stands on is never tagged itself, so the rules without a tag derive all others in as many
    steps as the chains have.
    """
    found: dict[str, Chain] = {}
    needed: set[str] = set()
    for name in order:
        if name in needed:
            continue
        usable = sorted((c for c in chains.get(name, ()) if not set(c) & found.keys()), key=lambda c: (len(c), c))
        if usable:
            found[name] = usable[0]
            needed |= set(usable[0])
    return found


def redundant(
    library: RuleLibrary | None = None,
    *,
    steps: int = STEPS,
    samples: int = SAMPLES,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Chain]:
    """The redundant rules of a library (by default the one that is loaded by default), each with the chain of other
    rules that does the same. Long statements are tagged before short ones. Deterministic."""
    library = load_rules() if library is None else library
    found: dict[str, set[Chain]] = {}
    work = functools.partial(_work, library=library, steps=steps, samples=samples)
    for name, chains in _mapped(work, list(library), jobs):
        found[name] = chains
        if progress:
            progress(len(found), len(library))
    order = sorted(library, key=lambda name: (-_size(library[name]), list(library).index(name)))
    chosen = tags(found, order)
    return {name: chosen[name] for name in library if name in chosen}


def _size(rule: Rule) -> int:
    """Operators of a statement: the more, the more special."""
    return sum(text.count("(") for text in (*rule.source, *rule.target))


def _work(name: str, library: RuleLibrary, steps: int, samples: int) -> tuple[str, set[Chain]]:
    return name, chains_of(library[name], library, steps, samples)


_shared: RuleLibrary | None = None


def _start(names: list[str]) -> None:
    """A worker reads the library itself: compiled rules do not travel."""
    global _shared
    from rlflow.rewrite import all_shipped

    _shared = RuleLibrary(rule for rule in all_shipped().values() if rule.name in set(names))


def _shared_work(name: str, steps: int, samples: int) -> tuple[str, set[Chain]]:
    assert _shared is not None, "the worker was started with the library's names"
    return _work(name, _shared, steps, samples)


def _mapped(
    work: functools.partial[tuple[str, set[Chain]]], names: list[str], jobs: int
) -> Iterable[tuple[str, set[Chain]]]:
    if jobs < 2:
        yield from map(work, names)
        return
    arguments = {key: work.keywords[key] for key in ("steps", "samples")}
    with ProcessPoolExecutor(jobs, initializer=_start, initargs=(names,)) as pool:
        try:
            yield from pool.map(functools.partial(_shared_work, **arguments), names, chunksize=2)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def write_tags(paths: Iterable[Path], chains: Mapping[str, Chain]) -> int:
    """Writes the field ``derived`` of every rule of the files, and removes what is no longer so; how many files
    changed. A tag says nothing about a rule's truth, so its proof record stays."""
    changed = 0
    for path in paths:
        before = path.read_text(encoding="utf-8")
        data = json.loads(before)
        data["rules"] = [_tagged(entry, chains.get(entry["name"])) for entry in data["rules"]]
        text = rule_file_text(data)
        if text != before:
            changed += 1
            write_atomically(path, text)
    return changed


def _tagged(entry: dict[str, object], chain: Chain | None) -> dict[str, object]:
    out: dict[str, object] = {}
    for key, value in entry.items():
        if key == "derived":
            continue
        out[key] = value
        if key == "numerics" and chain:
            out["derived"] = list(chain)
    if chain and "derived" not in out:
        out["derived"] = list(chain)
    return out
