"""A run as a command sees it: settings in, a rule file and a summary out."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlflow import _core
from rlflow.crew import Workers
from rlflow.errors import GraphError, UsageError
from rlflow.files import write_atomically
from rlflow.rewrite import Rule, read_rules
from rlflow.rewrite.paths import library_files
from rlflow.spawning import safe_context
from rlflow.synthesis.examples import of_constants, plain_text
from rlflow.synthesis.field import key_of
from rlflow.synthesis.generate.deriver import Deriver, sides_of
from rlflow.synthesis.generate.generator import (
    GENERATOR_VERSION,
    Effort,
    FoundRule,
    Generator,
    PhaseProgress,
    Report,
    StepCounts,
)
from rlflow.synthesis.generate.vocabulary import Vocabulary
from rlflow.synthesis.generate.work_folder import WorkFolder
from rlflow.synthesis.hints import hints_of
from rlflow.synthesis.rule_files import rule_file_text
from rlflow.synthesis.sampling import draw_sample

_DRAWS, _MISSES = 40, 2  # graphs drawn for near misses, and near misses of which the smallest is kept


@dataclass(frozen=True)
class Recipe:
    """What a run depends on. ``date`` is written into the rules and changes nothing else."""

    vocabulary: Vocabulary
    budget: Effort
    date: str

    @property
    def origin(self) -> str:
        """What the rules say about where they come from."""
        b = self.budget
        return (
            f"generated {self.date}: generator {GENERATOR_VERSION}, vocabulary {self.vocabulary.name}, "
            f"{b.max_ops} operators, seed {b.seed}"
        )

    def digest(self) -> dict[str, Any]:
        """What two runs must share for one to go on where the other stopped."""
        b = self.budget
        return {
            "generator": GENERATOR_VERSION,
            "vocabulary": repr(self.vocabulary),
            "max_ops": b.max_ops,
            "seed": b.seed,
            "samples": b.samples,
        }


@dataclass
class Findings:
    """``known``: names of rules that the core library implies in at most three steps."""

    found: list[FoundRule]
    known: set[str]
    statistics: StepCounts
    unproved: list[tuple[str, str]] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Counts and seconds, as plain data."""
        return {
            "total": self.statistics.total(),
            "groups": self.statistics.groups,
            "seconds": {k: round(s, 1) for k, s in self.statistics.seconds.items()},
            "equations": len({f.number for f in self.found}),
            "rules": len(self.found),
            "new": sum(f.rule.name not in self.known for f in self.found),
            "new_equations": len({f.number for f in self.found if f.rule.name not in self.known}),
            "unproved": [list(item) for item in self.unproved],
        }


def generate_file(
    settings: Recipe, out: Path, *, resume: bool = False, keep_work: bool = False, report: Report | None = None,
    workers: Workers | None = None,
) -> Findings:  # fmt: skip
    """Runs the generator and writes the rule file. Raises UsageError where something cannot be written or does not
    fit;
    KeyboardInterrupt leaves the work folder ``OUT.work`` behind. ``workers``: who proves, which changes no byte."""
    _check_writable(out)
    work = WorkFolder(out.with_name(out.name + ".work"), settings.digest(), resume=resume)
    generator = Generator(settings.vocabulary, settings.budget, work, report, workers)
    try:
        found = generator.run()
        known = {f.rule.name for f in known_rules(found)}
        started = time.perf_counter()
        data = rule_file(found, settings.origin, settings.budget.jobs, report)
        generator.statistics.seconds["examples"] = time.perf_counter() - started
        write_atomically(out, rule_file_text(data))
    finally:
        work.close()
    if not keep_work:
        work.remove()
    return Findings(found, known, generator.statistics, generator.unproved)


def _check_writable(out: Path) -> None:
    """Finds out before a long run, not after it."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        probe = out.with_name(out.name + ".part")
        probe.write_text("", encoding="utf-8")
        probe.unlink()
    except OSError as error:
        raise UsageError(f"The rule file {out} cannot be written: {error.strerror}.") from error
    if out.is_dir():
        raise UsageError(f"The rule file {out} cannot be written: it is a folder.")


def known_rules(found: Sequence[FoundRule]) -> list[FoundRule]:
    """Those that the package's core library implies in at most three steps."""
    library = Deriver(read_rules(library_files()))  # what it implies does not depend on its records
    answers: dict[int, bool] = {}
    for f in found:
        if f.number not in answers:
            answers[f.number] = library.implies(f.equation, f.group)
    return [f for f in found if answers[f.number]]


def examples_of(rule: Rule, graph: str) -> tuple[str | None, str | None]:
    """``graph``, the vocabulary's own, where the rule fires in it, and the smallest of a few near misses."""
    ruleset = _core.RuleSet([rule.core])
    fires = graph if graph and len(_core.State(_core.Graph.parse(graph), ruleset).moves()) else None
    hints = hints_of(rule)
    misses: list[tuple[int, str]] = []
    for k in range(_DRAWS):
        sample = draw_sample(hints, random.Random(key_of("near miss", rule.digest, k)))
        if sample is None or sample.symbols or len(misses) >= _MISSES:
            continue
        text = plain_text(sample.graph)
        try:
            parsed = _core.Graph.parse(text)
        except GraphError:
            continue
        if not len(_core.State(parsed, ruleset).moves()):
            misses.append((len(text), text))
    return fires, min(misses)[1] if misses else of_constants(fires, ruleset) if fires else None


def entry_of(rule: Rule, graph: str, origin: str) -> dict[str, Any]:
    """A rule-file entry, with an example that fires and one that does not where they are found."""
    fires, silent = examples_of(rule, graph)
    entry: dict[str, Any] = {
        "name": rule.name,
        "doc": rule.doc,
        "source": list(rule.source),
        "target": list(rule.target),
        "where": list(rule.where),
        "origin": origin,
        "numerics": rule.numerics,
        "samples": list(rule.samples),
    }
    entry.update({"fires": [fires]} if fires else {})
    entry.update({"silent": [silent]} if silent else {})
    if rule.proof is not None:
        entry["proof"] = rule.proof.to_json()
    return entry


def rule_file(found: Sequence[FoundRule], origin: str, jobs: int, report: Report | None = None) -> dict[str, Any]:
    """The data of a rule file."""
    entries = []
    plain = [Rule(**{name: getattr(f.rule, name) for name in Rule.__dataclass_fields__}) for f in found]
    graphs = [_graph_of(f) for f in found]
    with ProcessPoolExecutor(jobs, mp_context=safe_context()) as pool:
        for k, entry in enumerate(pool.map(entry_of, plain, graphs, [origin] * len(plain))):
            entries.append(entry)
            if report:
                report(PhaseProgress("examples", "", k + 1, len(found)))
    return {"format": 1, "family": "generated", "rules": entries}


def _graph_of(f: FoundRule) -> str:
    """The side of the equation that the rule starts from, over the vocabulary's extents."""
    sides = sides_of(f.equation, f.group)
    ruleset = _core.RuleSet([f.rule.core])
    for graph in sides or ():
        text = plain_text(graph)
        if len(_core.State(_core.Graph.parse(text), ruleset).moves()):
            return text
    return ""
