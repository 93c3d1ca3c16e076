"""One rule over one domain: graphs are drawn, the core rewrites them, both sides are evaluated exactly.

:class:`Trial` is the loop that the prover, the shrinking of counterexamples and the mining of conditions share.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from rlflow import _core
from rlflow.errors import GraphError
from rlflow.rewrite import Rule
from rlflow.synthesis.degree import degree_of
from rlflow.synthesis.domains import Array, Domain, Field, OfNothing, Ordered, Unsupported
from rlflow.synthesis.dropped import dropped_by
from rlflow.synthesis.element_types import DTYPES, INTEGERS
from rlflow.synthesis.field import key_of
from rlflow.synthesis.floats import runs_of
from rlflow.synthesis.hints import SamplingHints
from rlflow.synthesis.integers import CAST_EDGES
from rlflow.synthesis.operators import NeedsOrder, facets_of, valid_type
from rlflow.synthesis.sampling import Sample, draw_sample
from rlflow.synthesis.semantics import Evaluator, arbitrary_operators

MOVES_PER_SAMPLE = 3
TRIES_PER_SAMPLE = 60
STRAY_TRIES_PER_SAMPLE = 20
STRAYS_OF_CLASS = 4
#: Of each element type: samples that are wanted, and draws in vain after which no more are made, at least and at most.
OF_EACH_INTEGER, OF_EACH_TYPE, FEW_IN_VAIN, MOST_IN_VAIN = 8, 5, 24, 120
DRAWS_AFTER_FAILURE = 300
MOST_FAILURES = 40
LARGEST_PAIR, MOST_PAIRS, MORE_AT_BOUNDARIES = 40, 60, 60
MOST_OPERATOR_SETS, OF_NOTHING_OF_EACH_SET = 40, 6
_ORDER_OPS = re.compile(
    r"\b(Max|Min|MaxPool|GlobalMaxPool|ReduceMax|ReduceMin|ArgMax|ArgMin|Relu|Clip|LeakyRelu|PRelu|Abs|Cast)\b"
    r"|\b(Greater|Less\w*)\b|:monotone"
)
_COMPARED = re.compile(r"\b(Equal|Cast|Sign|Not|And|Or|Xor|Where)\b")
_CLASS = re.compile(r"\?\w+:(?:unary0|unary|monotone|binary|reduce)\b")  # of operators
# Refusals that say nothing against a rule: nothing to do, or a match that the applier rightly declines.
_SAME = re.compile(r"nothing changes|same graph")
_BENIGN = re.compile(r"cycle|is not known here|is not a known number|has a second output in use")


_DIGEST = re.compile(r"@[0-9a-f]{32}")


@dataclass
class Failure:
    """A graph on which the rule is false, and how."""

    kind: str
    reason: str
    graph: _core.Graph
    sample: Sample
    child: _core.Graph | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Elements in all, then nodes; symbolic extents count as large."""
        g = self.graph
        elements = 0
        for n in g.order():
            count = 1
            for d in g.shape(g.node_outputs(n)[0]) or []:
                count *= d if isinstance(d, int) else 9
            elements += count
        return elements, g.num_nodes


@dataclass(frozen=True)
class Pair:
    """A graph and its rewrite that agreed on a sample; ``size``: elements in all, then nodes."""

    size: tuple[int, int]
    parent: _core.Graph
    child: _core.Graph
    sample: Sample


@dataclass
class Outcome:
    """What one rewrite of one graph showed: ``good`` (both sides equal), ``bad`` (``failure``), ``same`` (the target is
    the source) or ``silent`` (nothing can be said). ``digest``: of the child; empty where it could not be built."""

    kind: str
    digest: str = ""
    failure: Failure | None = None


@dataclass(frozen=True)
class _Before:
    """What a graph gives before it is rewritten."""

    evaluator: Evaluator
    feeds: dict[int, Array]
    outputs: list[Array]


@dataclass
class Trial:
    """The sampling of one rule over one domain."""

    rule: Rule
    hints: SamplingHints
    domain: Domain
    samples: int
    seed: int
    fired: int = 0
    wild: int = 0
    same: int = 0
    tries: int = 0
    concrete: list[Sample] = field(default_factory=list)
    operators: dict[tuple[str, ...], int] = field(default_factory=dict)  # concrete samples of each set of operators
    of_nothing: dict[tuple[str, ...], list[Sample]] = field(default_factory=dict)  # by their sets of operators
    pairs: dict[str, Pair] = field(default_factory=dict)  # small graphs and their rewrites, over ordered rationals
    shapes: set[str] = field(default_factory=set)
    largest: int = 1
    ranks: tuple[int, int] = (9, 0)
    failures: list[Failure] = field(default_factory=list)
    degree: int = 1
    needs_order: bool = False
    unsupported: str = ""

    def __post_init__(self) -> None:
        self.ruleset = _core.RuleSet([self.rule.core])
        self.digest = self.rule.digest
        self.dropped = dropped_by(self.rule, self.hints.roots)
        compared = _COMPARED.search(self.rule.core.text())  # elsewhere a zero only brings divisions by it
        self.near = [v for v in self.hints.boundaries.values if v or compared]
        if "Cast" in self.rule.core.text():
            self.near += CAST_EDGES

    def go(self) -> None:
        """Draws until the rule fired in ``samples`` evaluations, or too many draws came to nothing; then beside the
        hints until it fired in as many that stray from them, or ``STRAY_TRIES_PER_SAMPLE`` as many draws are spent. Of
        a class of operators the hints name a few, so that more of those have to stray."""
        self._draw_while(lambda: self.fired < self.samples, self.samples * TRIES_PER_SAMPLE, stray=False)
        if self.fired >= self.samples and not self.failures and self.hints.samples:
            wanted = self.samples * (STRAYS_OF_CLASS if _CLASS.search(" ".join(self.rule.source)) else 1)
            limit = self.tries + wanted * STRAY_TRIES_PER_SAMPLE
            self._draw_while(lambda: self.wild < wanted, limit, stray=True)
        if self.fired >= self.samples and not self.failures:
            self._draw_types()

    def _draw_while(self, wanted: Callable[[], bool], limit: int, *, stray: bool = False, dtype: int = 0) -> None:
        after_failure = 0
        while self.tries < limit and wanted() and after_failure < DRAWS_AFTER_FAILURE:
            after_failure += bool(self.failures)
            sample = self.draw(self.hints, stray=stray, dtype=dtype)
            if sample is not None:
                self.judge(sample)
            if self.needs_order or len(self.failures) >= MOST_FAILURES or (not self.fired and self.same > self.samples):
                return

    def _draw_types(self) -> None:
        """Some samples of each integer type, which wrap and round where reals do not, and of each type that a condition
        names; as far as the rule fires there. By then it is known how often it fires."""
        in_vain = min(max(3 * self.tries // self.fired, FEW_IN_VAIN), MOST_IN_VAIN)
        for dtype in dict.fromkeys([*INTEGERS, *(DTYPES[name] for name in sorted(self.hints.types))]):
            before = self.fired
            self._draw_while(lambda: self.fired == before, self.tries + in_vain, dtype=dtype)  # noqa: B023 - used at once
            quota = OF_EACH_INTEGER if dtype in INTEGERS[:4] else OF_EACH_TYPE
            if self.fired > before:
                limit = self.tries + quota * in_vain
                self._draw_while(lambda: self.fired < before + quota, limit, dtype=dtype)  # noqa: B023
            if self.failures or self.needs_order:
                return

    def draw(self, hints: SamplingHints, *, stray: bool = False, dtype: int = 0) -> Sample | None:
        """The next graph; ``None`` where the draw came to nothing."""
        self.tries += 1
        rng = random.Random(key_of(self.seed, self.digest, self.domain.name, self.tries))
        return draw_sample(hints, rng, stray=stray, dtype=dtype)

    def judge(self, sample: Sample) -> list[Outcome]:
        """What the rule does to one graph. Counts and keeps the failures."""
        state = _core.State(sample.graph, self.ruleset)
        moves = state.moves()
        stats = state.stats().get(self.rule.name)
        if stats is None:
            return []
        outcomes = [self._refused(sample, stats)] if stats["refused"] else []
        before: list[_Before] = []
        for i in range(min(len(moves), MOVES_PER_SAMPLE)):
            outcome = self._compare(sample, state.child(i), moves.digest_hex(i), before)
            if self.needs_order:
                return []
            outcomes.append(outcome)
        for outcome in outcomes:
            self.same += outcome.kind == "same"
            if outcome.failure is not None:
                self.failures.append(outcome.failure)
        return outcomes

    def _refused(self, sample: Sample, stats: dict[str, object]) -> Outcome:
        refusal = str(stats["last_refusal"])
        if _SAME.search(refusal):
            return Outcome("same")
        if sample.symbols or _BENIGN.search(refusal):
            return Outcome("silent")
        reason = f"the conditions hold, and the target is ill-typed: {refusal}"
        return Outcome("bad", "", Failure("shape", reason, sample.graph, sample))

    def _bound(self, sample: Sample, child: _core.Graph, digest: str) -> tuple[_core.Graph, _core.Graph] | Outcome:
        """Both graphs with the symbolic extents at the values they were drawn with."""
        if not sample.symbols:
            return sample.graph, child
        try:
            parent = sample.graph.bind(sample.symbols)
        except GraphError:
            return Outcome("silent", digest)  # the names hid a contradiction of the drawn graph itself
        try:
            return parent, child.bind(sample.symbols)
        except GraphError as error:
            reason = f"with {sample.symbols} the target is ill-typed: {error}"
            return Outcome("bad", digest, Failure("shape", reason, sample.graph, sample))

    def _compare(self, sample: Sample, child: _core.Graph, digest: str, before: list[_Before]) -> Outcome:
        """``before``: the parent's values, which the first of its rewrites leaves there for the others."""
        bound = self._bound(sample, child, digest)
        if isinstance(bound, Outcome):
            return bound
        parent, child = bound
        undefined = _undefined(child) if self._of_integers(sample) else ""
        if undefined and not _undefined(parent):
            return _bad("shape", undefined, parent, child, sample, digest)
        try:
            if not before:
                evaluator = Evaluator(self.domain, key_of(self.seed, self.tries), self.near)
                feeds = evaluator.inputs(parent, sample.index_inputs)
                before.append(_Before(evaluator, feeds, evaluator.run(parent, feeds)))
            after = before[0].evaluator.run(child, before[0].feeds)
        except OfNothing as why:
            if not before:
                self._keep_of_nothing(sample)
                return Outcome("silent", digest)
            reason = f"the source is a number, and the target is {why}"
            return _bad("value", reason, parent, child, sample, digest)
        except Unsupported as why:
            self.unsupported = str(why)
            return Outcome("silent", digest)
        except NeedsOrder:
            self.needs_order = True
            return Outcome("silent", digest)
        problem = difference(parent, child, before[0].outputs, after)
        if problem:
            return _bad(*problem, parent, child, sample, digest)
        self._count(sample, parent, child)
        return Outcome("good", digest)

    @staticmethod
    def _of_integers(sample: Sample) -> bool:
        return sample.dtype in INTEGERS

    def _keep(self, configuration: str, sample: Sample, parent: _core.Graph, child: _core.Graph) -> None:
        """Keeps small graphs, to be decided by cases."""
        at_boundary = bool(extents_of(parent) & {*self.hints.boundaries.extents})
        if len(self.pairs) < MOST_PAIRS + at_boundary * MORE_AT_BOUNDARIES:
            size = Failure("", "", parent, sample).size
            if size[0] <= LARGEST_PAIR:
                self.pairs.setdefault(configuration, Pair(size, parent, child, sample))

    def _keep_of_nothing(self, sample: Sample) -> None:
        """Keeps a graph that makes elements of nothing, to be run in floating point. The standard does not say what a
        mean of nothing is."""
        makers = set() if sample.symbols else _makers(sample.graph)
        if makers and not makers & {"ReduceMean", "GlobalAveragePool"}:
            kept = self.of_nothing.setdefault(_operators(sample.graph), [])
            if len(kept) < OF_NOTHING_OF_EACH_SET:
                kept.append(sample)

    def _count(self, sample: Sample, parent: _core.Graph, child: _core.Graph) -> None:
        configuration = _configuration(parent)
        if self.domain.ordered and not self._of_integers(sample):
            self._keep(configuration, sample, parent, child)
        elif not self.domain.ordered:
            self.degree = max(self.degree, degree_of(parent), degree_of(child))
        self.dropped.note(parent)
        self.fired += 1
        self.wild += sample.wild
        self.shapes.add(configuration)
        shapes = [parent.shape(v) or [] for v in parent.outputs()]
        self.largest = max([self.largest, *(d for shape in shapes for d in shape if isinstance(d, int))])
        leaves = [len(parent.shape(parent.node_outputs(n)[0]) or []) for n in parent.inputs()]
        self.ranks = (min([self.ranks[0], *leaves]), max([self.ranks[1], *leaves]))
        self._keep_of_nothing(sample)
        operators = _operators(parent)
        count = self.operators.get(operators, 0)
        new = count < runs_of(operators) and (count or len(self.operators) < MOST_OPERATOR_SETS)
        if not sample.symbols and not self._of_integers(sample) and (len(self.concrete) < 24 or new):
            self.operators[operators] = count + 1
            self.concrete.append(sample)


def _bad(kind: str, reason: str, parent: _core.Graph, child: _core.Graph, sample: Sample, digest: str) -> Outcome:
    """A failure on the bound graphs."""
    plain = replace(sample, graph=parent, symbols={})
    return Outcome("bad", digest, Failure(kind, reason, parent, plain, child))


def _undefined(graph: _core.Graph) -> str:
    """An operator on a type that ONNX does not define it for, in a sentence; nothing where there is none."""
    for n in graph.order():
        operands = [v for v in graph.node_inputs(n)[:1] if v >= 0]
        if operands and not valid_type(graph.op(n), graph.dtype(operands[0])):
            return f"the conditions hold, and ONNX does not define {graph.op(n)} for {graph.type_text(operands[0])}"
    return ""


def _operators(graph: _core.Graph) -> tuple[str, ...]:
    return tuple(sorted({graph.op(n) for n in graph.order()}))


def _makers(graph: _core.Graph) -> set[str]:
    """Operators that make elements of an operand that has none."""

    def empty(v: int) -> bool:
        return v >= 0 and 0 in (graph.shape(v) or [])

    return {
        graph.op(n)
        for n in graph.order()
        if any(map(empty, graph.node_inputs(n)[:1])) and not empty(graph.node_outputs(n)[0])
    }


def extents_of(graph: _core.Graph) -> set[int]:
    """Extents of the graph's inputs."""
    shapes = [graph.shape(graph.node_outputs(n)[0]) or [] for n in graph.inputs()]
    return {d for shape in shapes for d in shape if isinstance(d, int)}


def _configuration(graph: _core.Graph) -> str:
    """The graph without what tells constants apart."""
    return _DIGEST.sub("", graph.text())


def difference(
    parent: _core.Graph, child: _core.Graph, before: list[np.ndarray], after: list[np.ndarray]
) -> tuple[str, str] | None:
    """Kind and sentence of the first output that is not the same on both sides."""
    for k, (v, w, a, b) in enumerate(zip(parent.outputs(), child.outputs(), before, after, strict=True)):
        if parent.dtype(v) != child.dtype(w) or a.shape != b.shape:
            return "shape", f"output {k} is {parent.type_text(v)} before and {child.type_text(w)} after"
        unequal = np.asarray(a != b, dtype=bool)
        if unequal.any():
            at = [int(e[0]) for e in np.nonzero(unequal)] if a.ndim else []
            return "value", f"output {k} differs at {at} ({int(unequal.sum())} of {a.size} elements)"
    return None


def explore(
    rule: Rule,
    hints: SamplingHints,
    samples: int,
    seed: int,
    go: Callable[[Trial], None] | None = None,
    method: str = "",
) -> Trial:
    """A trial over the field; over ordered rationals where an operator or a false step asks for an order; over the
    field with arbitrary signs where these fail at an arbitrary function.

    ``go`` runs the trial (by default :meth:`Trial.go`); ``method`` fixes the domain.
    """
    run = go or Trial.go
    trial = Trial(rule, hints, Ordered() if method == "ordered" else Field(), samples, seed)
    run(trial)
    false_here = bool(trial.failures) and trial.failures[0].kind == "value" and _ORDER_OPS.search(rule.core.text())
    if not method and (trial.needs_order or false_here):
        trial = Trial(rule, hints, Ordered(), samples, seed)
        run(trial)
    if method == "ordered" or not any(map(_is_of_arbitrary_functions, trial.failures)):
        return trial
    signed = Trial(rule, hints, Field(signs=True), samples, seed)
    run(signed)
    return trial if signed.failures or signed.needs_order else signed


def _is_of_arbitrary_functions(failure: Failure) -> bool:
    """Whether a failure may be that of a function of which the rationals know too little, and a sign may help."""
    graphs = [graph for graph in (failure.graph, failure.child) if graph is not None]
    signs = any(facets_of(graph.op(node)).by_sign is not None for graph in graphs for node in graph.order())
    return failure.kind == "value" and signs and bool(arbitrary_operators(failure.graph, failure.child, Ordered()))
