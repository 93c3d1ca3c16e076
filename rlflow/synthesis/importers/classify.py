"""What becomes of each rule of a foreign file: true or not, under which conditions, known here already, or new."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from rlflow.errors import RlflowError, RuleError
from rlflow.ledger import Kind, Ledger, key
from rlflow.rewrite import PROVER_VERSION, Rule, RuleLibrary, all_shipped
from rlflow.synthesis.cache import prove_cached
from rlflow.synthesis.derive import Derivation, derive
from rlflow.synthesis.importers.building import ELEMENTWISE, INEXPRESSIBLE, Inexpressible, padding_counted
from rlflow.synthesis.importers.convert import convert
from rlflow.synthesis.importers.foreign import VARIABLE, ForeignRule, ForeignTerm
from rlflow.synthesis.importers.instances import CHANNELS, EQUAL, READINGS, TASO, UNGROUPED, Reading, draws
from rlflow.synthesis.importers.readings import judge

#: Statuses, in the order in which tables list them.
STATUSES = ("as is", "conditions", "identity", "ours", "derived", "refuted", "inexpressible", "undecided")
STEPS = 3
_INSTANCES = 8


@dataclass(frozen=True)
class ImportOutcome:
    """One rule's.

    ``status``: "as is" or "conditions" (true, and new here; ``conditions`` says what had to be added), "identity"
    (both sides are one graph of ours), "ours" (one rule of the library does it), "derived" (several do), "refuted"
    (false under every reading), "inexpressible", "undecided" (true as far as seen, but not proved).
    ``readings``: what each reading of the rule gave; ``truth``: the weakest under which it is true, or "".
    ``chain``: the library's rules that derive it; ``backwards``: how many of them, from the end on, are used from
    right to left; ``weights``: the variables that were constants there. ``rule``: our statement with its proof, as in
    a rule file, where it was made.
    """

    index: int
    origin: str
    statement: str
    status: str
    conditions: tuple[str, ...] = ()
    readings: tuple[tuple[str, str], ...] = ()
    truth: str = ""
    chain: tuple[str, ...] = ()
    backwards: int = 0
    weights: tuple[str, ...] = ()
    counterexample: str = ""
    reason: str = ""
    rule: dict[str, Any] | None = None

    @property
    def steps(self) -> str:
        """The derivation as text."""
        forward = len(self.chain) - self.backwards
        return ", ".join(name + (" (right to left)" if k >= forward else "") for k, name in enumerate(self.chain))

    def __str__(self) -> str:
        text = {
            "as is": "imported as is" if self.rule else "true as it is",
            "conditions": f"{'imported' if self.rule else 'true'} with {'; '.join(self.conditions)}",
            "identity": "identity here",
            "ours": f"a rule of ours: {self.steps}",
            "derived": f"derived from ours: {self.steps}",
            "refuted": f"refuted: {self.reason} ({self.counterexample})",
            "inexpressible": f"not expressible: {self.reason}",
            "undecided": f"not proved: {self.reason}",
        }[self.status]
        weights = f", {', '.join(self.weights)} constant" if self.weights else ""
        known = self.conditions and self.status in ("ours", "derived")
        needs = f" (with {'; '.join(self.conditions)})" if known else ""
        return f"{self.origin}: {text}{weights}{needs}"


@dataclass(frozen=True)
class ImportOptions:
    """``matches``: exact comparisons a reading. ``steps``: of a derivation. ``everything``: write also what the
    library has or implies. ``all_readings``: judge the stronger readings too, for tables."""

    matches: int = 60
    steps: int = STEPS
    everything: bool = False
    all_readings: bool = False


def weights_of(rule: ForeignRule) -> frozenset[str]:
    """Variables that stand as weights only: kernels, right operands of products, factors."""
    found: dict[bool, set[str]] = {False: set(), True: set()}

    def visit(term: ForeignTerm, weight: bool) -> None:
        if term.op == VARIABLE:
            found[weight].add(term.name)
        for k, operand in enumerate(term.operands):
            second = k == 1 and term.op in ("conv2d", "matmul", "smul", "enlarge")
            visit(operand, weight or second or (k == 0 and term.op == "enlarge"))

    for side in (*rule.sources, *rule.targets):
        visit(side, False)
    return frozenset(found[True] - found[False])


def classify(rule: ForeignRule, library: RuleLibrary, options: ImportOptions = ImportOptions()) -> ImportOutcome:
    """What becomes of a rule. Deterministic."""
    base = ImportOutcome(rule.index, rule.origin, str(rule), "inexpressible")
    try:
        return _classified(rule, library, options, base)
    except Inexpressible as reason:
        return replace(base, reason=str(reason))
    except RlflowError as error:
        return replace(base, status="undecided", reason=f"the prover failed: {error}")


def _classified(rule: ForeignRule, library: RuleLibrary, options: ImportOptions, base: ImportOutcome) -> ImportOutcome:
    if rule.unreadable:
        raise Inexpressible(rule.unreadable)
    for term in rule.operators():
        if term.op in INEXPRESSIBLE:
            raise Inexpressible(INEXPRESSIBLE[term.op])
    if rule.sources == rule.targets:
        return replace(base, status="identity", truth=TASO.name)
    truth, base = _read(rule, options, base)
    if truth is None or base.status == "identity":
        return base
    derived = _derive(rule, truth, library, options.steps)
    if derived is not None:
        base = _with_chain(base, *derived)
        if base.status == "identity" or not options.everything:
            return base
    found = _imported(rule, truth, base)
    return found if base.chain else _known_after_all(rule, library, options, found)


def _readings(rule: ForeignRule) -> list[Reading]:
    """The readings, weakest first. Those that differ in nothing the rule has are left out."""
    joined = any(t.op in ELEMENTWISE for t in rule.operators())
    convolved = any(t.op == "conv2d" for t in rule.operators(source_only=True))
    chosen = [TASO, *([EQUAL] if joined else []), *([UNGROUPED, CHANNELS] if convolved else [])]
    if not padding_counted((*rule.sources, *rule.targets)):
        return chosen
    return [r for pair in ((r, replace(r, count_pad=True)) for r in chosen) for r in pair]


def _read(rule: ForeignRule, options: ImportOptions, base: ImportOutcome) -> tuple[Reading | None, ImportOutcome]:
    """The weakest reading under which the rule is true, and the outcome so far."""
    truth, last, found = None, None, []
    for reading in _readings(rule):
        tally = judge(rule, reading, matches=options.matches)
        found.append((reading.name + (", padding counted" if reading.count_pad else ""), tally.status))
        if tally.status in ("true", "identity") and truth is None:
            truth = reading
            status = "identity" if tally.status == "identity" else base.status
            base = replace(base, truth=found[-1][0], status=status)
            if not options.all_readings:
                break
        elif tally.false and truth is None:
            last = tally if last is None or not reading.count_pad else last
            if not base.counterexample:
                base = replace(base, counterexample=tally.counterexample, reason=tally.reason)
    base = replace(base, readings=tuple(found), conditions=_phrases(truth))
    if truth is None:
        status = "refuted" if last is not None else "undecided"
        return None, replace(base, status=status, reason=base.reason or "no match was found at which it applies")
    return truth, base if base.conditions else replace(base, counterexample="", reason="")


def _phrases(reading: Reading | None) -> tuple[str, ...]:
    """What a reading adds to TASO's own shape checks."""
    if reading is None:
        return ()
    said = [
        (reading.equal_shapes and reading.groups, "elementwise operands of equal shape"),
        (not reading.groups, "elementwise operands of equal shape, source convolutions without groups"),
        (reading.equal_channels, "equal Cin and equal Cout"),
        (reading.count_pad, "means that count the padding"),
    ]
    return tuple(phrase for holds, phrase in said if holds)


def relevant(conditions: Iterable[str], rule: ForeignRule) -> tuple[str, ...]:
    """The conditions that are about operators that the rule has."""
    has_ew = any(t.op.startswith("ew") for t in rule.operators())
    has_conv = any(t.op == "conv2d" for t in rule.operators())
    kept = []
    for phrase in conditions:
        for part in phrase.split(", "):
            about = has_ew if part.startswith("elementwise") else has_conv if "convolution" in part else True
            if about:
                kept.append(part)
    return tuple(kept)


def _derive(
    rule: ForeignRule, truth: Reading, library: RuleLibrary, steps: int
) -> tuple[Derivation, frozenset[str]] | None:
    """A derivation by steps from left to right, with all variables free, else with the weights constant; else one that
    uses rules from right to left too."""
    modes = list(dict.fromkeys((frozenset(), weights_of(rule))))
    instances = {m: draws(rule, _INSTANCES, "derive", truth, m) for m in modes}
    for backwards in (False, True):
        for constants in modes:
            pairs = [(i.source, i.target) for i in instances[constants] if i.target]
            found = derive(pairs, library, steps, backwards=backwards)
            if found is not None:
                return found, constants
    return None


def _with_chain(base: ImportOutcome, found: Derivation, constants: frozenset[str]) -> ImportOutcome:
    status = "identity" if not len(found) else "ours" if len(found) == 1 else "derived"
    return replace(
        base,
        status=status,
        chain=(*found.forward, *reversed(found.backward)),
        backwards=len(found.backward),
        weights=tuple(sorted(constants)),
        conditions=base.conditions,
    )


def _known_after_all(
    rule: ForeignRule, library: RuleLibrary, options: ImportOptions, found: ImportOutcome
) -> ImportOutcome:
    """The prover asked for more than the readings showed: with that, the library may have the rule."""
    for reading in READINGS[1:]:
        if _phrases(reading) == found.conditions:
            derived = _derive(rule, reading, library, options.steps)
            if derived is not None:
                known = _with_chain(found, *derived)
                return known if options.everything else replace(known, rule=None)
    return found


def _imported(rule: ForeignRule, truth: Reading, base: ImportOutcome) -> ImportOutcome:
    """Our statement, proved: under the weakest reading that suffices, else with mined conditions."""
    reasons = ""
    stronger = [r for r in (TASO, EQUAL, UNGROUPED, CHANNELS) if READINGS.index(r) >= _strength(truth)]
    for reading in (replace(r, count_pad=truth.count_pad) for r in stronger):
        ours = convert(rule, reading)
        try:
            ours = replace(ours, proof=prove_cached(ours))
        except RuleError as error:
            reasons = reasons or error.reason.splitlines()[0]
            continue
        return _written(base, ours, _phrases(reading))
    mended, added = _mined(convert(rule, truth))
    if mended is not None:
        return _written(base, mended, (*_phrases(truth), *added))
    return replace(base, status=base.status if base.chain else "undecided", reason=reasons)


def _strength(reading: Reading) -> int:
    return READINGS.index(replace(reading, count_pad=False))


def _mined(rule: Rule) -> tuple[Rule | None, tuple[str, ...]]:
    from rlflow.synthesis.repair import repair

    answer = repair(rule)
    return answer.repaired, answer.added


def _written(base: ImportOutcome, rule: Rule, conditions: tuple[str, ...]) -> ImportOutcome:
    status = base.status if base.chain else "conditions" if conditions else "as is"
    return replace(base, status=status, conditions=conditions, rule=rule_entry(rule))


def rule_entry(rule: Rule) -> dict[str, Any]:
    """A rule as a rule file has it."""
    entry: dict[str, Any] = {
        "name": rule.name, "doc": rule.doc, "source": list(rule.source), "target": list(rule.target),
        "where": list(rule.where), "origin": rule.origin, "numerics": rule.numerics, "samples": list(rule.samples),
    }  # fmt: skip
    if rule.let:
        entry["let"] = dict(rule.let)
    if rule.proof is not None:
        entry["proof"] = rule.proof.to_json()
    return {key: value for key, value in entry.items() if value}


# ---- many rules


def classify_all(
    rules: Sequence[ForeignRule],
    *,
    options: ImportOptions = ImportOptions(),
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[ImportOutcome]:
    """The outcomes, in the rules' order. Equal statements are judged once, ``jobs`` processes share the work, and what
    was found is remembered in the cache folder as it is found, so that an interrupted run goes on where it stopped.
    ``progress`` is told how many of how many are done."""
    first = {(r.sources, r.targets, r.unreadable): r for r in reversed(rules)}
    distinct = sorted(first.values(), key=lambda r: r.index)
    found: dict[int, ImportOutcome] = {}
    for done, outcome in enumerate(_outcomes(distinct, options, jobs), 1):
        found[outcome.index] = outcome
        if progress:
            progress(done, len(distinct))
    return [_for_rule(found[first[r.sources, r.targets, r.unreadable].index], r) for r in rules]


def _for_rule(outcome: ImportOutcome, rule: ForeignRule) -> ImportOutcome:
    if outcome.index == rule.index:
        return replace(outcome, conditions=relevant(outcome.conditions, rule))
    return replace(outcome, index=rule.index, origin=rule.origin, conditions=relevant(outcome.conditions, rule))


def _outcomes(rules: Sequence[ForeignRule], options: ImportOptions, jobs: int) -> Iterator[ImportOutcome]:
    open_rules = []
    for rule in rules:
        known = _remembered(rule, options)
        if known is not None:
            yield known
        else:
            open_rules.append(rule)
    if jobs < 2 or len(open_rules) < 4:
        yield from (_one(rule, options) for rule in open_rules)
        return
    with ProcessPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(functools.partial(_one, options=options), open_rules, chunksize=1)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


@functools.cache
def _library() -> RuleLibrary:
    return all_shipped()


def _one(rule: ForeignRule, options: ImportOptions) -> ImportOutcome:
    outcome = classify(rule, _library(), options)
    Ledger(IMPORTS).keep(_key(rule, options), outcome)
    return outcome


def _key(rule: ForeignRule, options: ImportOptions) -> str:
    versions = (PROVER_VERSION, _library().digest)
    return key(*versions, rule.origin, rule.numbered, str(rule), sorted(asdict(options).items()))


def _remembered(rule: ForeignRule, options: ImportOptions) -> ImportOutcome | None:
    found = Ledger(IMPORTS).recall(_key(rule, options))
    return None if found is None else replace(found, index=rule.index)


def _outcome(plain: dict[str, Any]) -> ImportOutcome:
    for name in ("conditions", "chain", "weights"):
        plain[name] = tuple(plain[name])
    return ImportOutcome(**{**plain, "readings": tuple(tuple(pair) for pair in plain["readings"])})


#: What became of the rules of other programs' files; the version is that of the judgement.
IMPORTS = Kind("imports", 5, asdict, _outcome)
