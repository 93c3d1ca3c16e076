"""Deriving a rule from the operators' laws with z3: a second argument, over all shapes at once.

Tensors are an uninterpreted sort, operators uninterpreted functions of attributes and operands. ``ok(t)`` says that a
term is well-typed. A law (:mod:`laws`) is the formula "ok(left) and its conditions: left = right and ok(right)"; a
rule's conditions hold, and its sources and targets are ok (that targets are is the field method's to show, and the
core's when it applies the rule); asked is whether source and target can differ. Conditions are equations
between uninterpreted functions of what they mention, so that only their text counts; ranks are integers, and a few
facts about shapes are given (:data:`SHAPE_FACTS`). So the answer "derived" is as good as the laws, each of which the
exact evaluator validates; the answer "not derived" says nothing about the rule.

z3 works under a resource limit (which makes the answer the same on every machine) in a process of its own, which is
ended after ``seconds``: it never hangs. ``pip install 'rlflow[prove]'`` brings z3.
"""

from __future__ import annotations

import ast
import functools
import multiprocessing
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rlflow.errors import ProofError, RuleError
from rlflow.registry import not_installed
from rlflow.rewrite import Rule
from rlflow.synthesis.laws import LAWS, Law
from rlflow.synthesis.operators import flags_of
from rlflow.synthesis.terms import Term, literal, read_term

SECONDS = 20.0
RESOURCES = 400_000  # z3's rlimit for one question: less than a second


@dataclass(frozen=True)
class AxiomDerivation:
    """``laws``: the names of those that z3 used (an unsatisfiable core: sufficient, not always minimal)."""

    proved: bool
    laws: tuple[str, ...] = ()
    reason: str = ""


class _Beyond(Exception):  # noqa: N818 - becomes an answer
    """The statement says something that this translation has no words for."""


def derive(rule: Rule, seconds: float = SECONDS, laws: Sequence[Law] = LAWS) -> AxiomDerivation:
    """Whether the laws imply the rule. Raises ProofError where z3 is not installed."""
    z3_or_raise()
    try:
        rule.core  # noqa: B018 - compiles it
    except RuleError as error:
        return AxiomDerivation(False, (), error.reason)
    context: Any = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")
    receive, send = context.Pipe(duplex=False)
    plain = Rule(rule.name, rule.family, rule.source, rule.target, rule.where, rule.let)
    worker = context.Process(target=_work, args=(send, plain, tuple(laws)), daemon=True)
    worker.start()
    send.close()
    try:
        if receive.poll(seconds):
            return AxiomDerivation(*receive.recv())
        return AxiomDerivation(False, (), f"z3 found nothing in {seconds:g} s")
    except EOFError:
        return AxiomDerivation(False, (), "z3's process died")
    finally:
        worker.kill()
        worker.join()
        receive.close()


def z3_or_raise() -> Any:
    """The module. Raises ProofError with what to install."""
    try:
        import z3
    except ImportError as error:
        raise ProofError(
            f"The axiom method needs it: {not_installed('z3', 'z3', '[prove]')}. The field method needs nothing."
        ) from error
    return z3


def _work(send: Any, rule: Rule, laws: tuple[Law, ...]) -> None:
    try:
        send.send(_derive(rule, laws))
    except _Beyond as why:
        send.send((False, (), f"the axiom method has no words for it: {why}"))
    except (z3_or_raise().Z3Exception, RuleError) as error:
        send.send((False, (), f"z3 cannot take the statement: {error}"))
    send.close()


def _derive(rule: Rule, laws: Sequence[Law]) -> tuple[bool, tuple[str, ...], str]:
    """First from the laws about the rule's own operators, then from all that share one with it."""
    own = _operators((*rule.source, *rule.target, *(v for k, v in rule.let if k.startswith("?"))))
    if any({"unary", "binary"} & flags_of(name) for name in own if name != "?"):
        own.add("?")
    near = [law for law in laws if _operators((law.left, law.right)) <= own]
    wide = [law for law in laws if _operators((law.left, law.right)) & (own - {"?"}) or law in near]
    for chosen in (near, wide) if len(wide) > len(near) else (near,):
        used = _Attempt().run(rule, chosen)
        if used is not None:
            return True, used, f"derived from {', '.join(used) or 'nothing but equality'}"
    return False, (), f"not derived from {len(wide)} laws within z3's limits"


def _operators(texts: Iterable[str]) -> set[str]:
    """Names of the operators; "?" stands for operator variables."""
    found: set[str] = set()
    for text in texts:
        found |= {m if m[0] != "?" else "?" for m in re.findall(r"\((\?|[A-Z]\w*)", text)}
    return found


_VARIABLE, _ROOT = "v_", "root_0"
_RELATIONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}


def _parsed(text: str) -> ast.expr:
    """An expression of the term language read as one of Python's, which agrees in all but ``if(...)``."""
    plain = re.sub(r"\?(\w+)(?:\.\.\.)?", rf"{_VARIABLE}\1", text).replace("$0", _ROOT)
    try:
        return ast.parse(plain.strip(), mode="eval").body
    except SyntaxError as error:
        raise _Beyond(f"the expression {text}") from error


def _split(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """Head and parts of an expression, for a function of the parts."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id, list(node.args)
    parts = [child for child in ast.walk(node) if child is not node and isinstance(child, ast.expr)]
    direct = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    operator = type(node.op).__name__ if isinstance(node, (ast.BinOp, ast.UnaryOp)) else ""
    if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.List, ast.Tuple)):
        return f"{type(node).__name__}{operator}", direct
    # Slices and the like: by their text, as a function of the names in them.
    names = [child for child in parts if isinstance(child, ast.Name)]
    shown = ast.unparse(node)
    unique = list({child.id: child for child in names if child.id.startswith((_VARIABLE, _ROOT))}.values())
    for k, child in enumerate(unique):
        shown = re.sub(rf"\b{child.id}\b", f"#{k}", shown)
    return shown, list(unique)


class _Names:
    """The constants (or bound variables) that the names of one statement stand for."""

    def __init__(self, make: Callable[[str, str], Any]) -> None:
        self.make, self.known = make, {}  # type: ignore[var-annotated]

    def get(self, name: str, sort: str) -> Any:
        if name not in self.known:
            self.known[name] = (sort, self.make(name, sort))
        if self.known[name][0] != sort:
            raise _Beyond(f"{name} is used as two things")
        return self.known[name][1]


def _covers(term: Any, bound: Sequence[Any]) -> bool:
    """Whether a term mentions every bound variable, and so can be a pattern."""
    seen: set[str] = set()

    def walk(t: Any) -> None:
        seen.add(str(t))
        for child in t.children():
            walk(child)

    walk(term)
    return bool(term.children()) and all(str(b) in seen for b in bound)


class _Attempt:
    """One question to z3."""

    def __init__(self) -> None:
        self.z3 = z3_or_raise()
        self.sorts = {"tensor": self.z3.DeclareSort("Tensor"), "attribute": self.z3.DeclareSort("Attribute")}
        tensor = self.sorts["tensor"]
        self.ok = self.z3.Function("ok", tensor, self.z3.BoolSort())
        self.rank = self.z3.Function("rank", tensor, self.z3.IntSort())
        self.same = self.z3.Function("same_shape", tensor, tensor, self.z3.BoolSort())
        self.literals: dict[str, Any] = {}
        self.operators: dict[tuple[Any, ...], Any] = {}

    def run(self, rule: Rule, laws: Sequence[Law]) -> tuple[str, ...] | None:
        """The laws used, or ``None`` where z3 does not derive it."""
        z3 = self.z3
        names = _Names(lambda name, sort: z3.Const(name, self.sorts[sort]))
        let = dict(rule.let)
        sources = [self._term(read_term(text), names, let) for text in rule.source]
        targets = [self._target(text, names, let) for text in rule.target]
        solver = z3.Solver()
        solver.set("rlimit", RESOURCES)
        solver.set("unsat_core", True)
        for side in (*sources, *targets):
            solver.add(*(self.ok(t) for t in self._below(side)))
        for condition in rule.where:
            solver.add(self._condition(_spelled(condition, let), names))
        solver.add(z3.Or(*(s != t for s, t in zip(sources, targets, strict=True))))
        formulas = [(law.name, self._law(law)) for law in laws]
        for law, formula in formulas:
            solver.assert_and_track(formula, law)
        solver.add(*self._shape_facts(), *self._subterms())
        if len(self.literals) > 1:
            solver.add(z3.Distinct(*self.literals.values()))
        if solver.check() != z3.unsat:
            return None
        core = {str(item) for item in solver.unsat_core()}
        return tuple(law.name for law in laws if law.name in core)

    # ---- terms

    def _target(self, text: str, names: _Names, let: dict[str, str]) -> Any:
        for name, value in let.items():
            if name.startswith("?"):
                text = re.sub(re.escape(name) + r"(?!\w)", functools.partial(_constant, value), text)
        return self._term(read_term(text), names, let)

    def _term(self, term: Term, names: _Names, let: dict[str, str]) -> Any:
        if term.kind == "var":
            return names.get(term.name, "tensor")
        if term.kind != "op" or term.star or isinstance(term.op_class, list):
            raise _Beyond("sequences, absent operands or lists of operators")
        attributes = sorted(term.attrs.items())
        arguments = [self._value(_spelled(text, let), names) for _, text in attributes]
        if term.rest:
            arguments.append(names.get(term.rest, "attribute"))
        if term.op_var:
            arguments.append(names.get(term.op_var, "attribute"))
        children = [self._term(child, names, let) for child in term.children]
        kind = "?" if term.op_var else term.op
        if not term.op_var and not arguments and {"unary", "binary"} & flags_of(term.op):
            kind = "?"  # a pointwise operator is a case of an operator variable
            arguments.append(self._literal(f"operator {term.op}"))
        key = (kind, tuple(n for n, _ in attributes), bool(term.rest), len(children), str(term.output))
        return self._operator(key, len(arguments), len(children))(*arguments, *children)

    def _operator(self, key: tuple[Any, ...], attributes: int, operands: int) -> Any:
        if key not in self.operators:
            sorts = [self.sorts["attribute"]] * attributes + [self.sorts["tensor"]] * (operands + 1)
            self.operators[key] = self.z3.Function("/".join(map(str, key)), *sorts)
        return self.operators[key]

    def _below(self, term: Any) -> list[Any]:
        """The term and all tensor terms in it."""
        found = [term] if term.sort() == self.sorts["tensor"] else []
        return found + [t for child in term.children() for t in self._below(child)]

    # ---- attributes and conditions

    def _value(self, text: str, names: _Names) -> Any:
        """An expression as an attribute: a variable, a literal, or a function of what it is made of."""
        node = _parsed(text)
        if isinstance(node, ast.Name) and node.id != _ROOT:
            name = "?" + node.id.removeprefix(_VARIABLE)
            return names.get(name, "attribute")
        return self._expression(node, names)

    def _literal(self, shown: str) -> Any:
        return self.literals.setdefault(shown, self.z3.Const(f"literal {shown}", self.sorts["attribute"]))

    def _expression(self, node: ast.expr, names: _Names) -> Any:
        text = ast.unparse(node)
        if literal(text) is not None:
            return self._literal(repr(literal(text)))
        if isinstance(node, ast.Name):
            return self._named(node.id, names)
        head, parts = _split(node)
        arguments = [self._expression(part, names) for part in parts]
        return self._function(head, arguments, self.sorts["attribute"])

    def _function(self, head: str, arguments: Sequence[Any], sort: Any) -> Any:
        name = f"{head}/{','.join(str(a.sort()) for a in arguments)}"
        if not arguments:
            return self.z3.Const(name, sort)
        return self.z3.Function(name, *(a.sort() for a in arguments), sort)(*arguments)

    def _named(self, name: str, names: _Names) -> Any:
        if name == _ROOT:
            return self.z3.Const("$0", self.sorts["tensor"])
        name = "?" + name.removeprefix(_VARIABLE)
        return names.get(name, names.known.get(name, ("tensor",))[0])

    def _condition(self, text: str, names: _Names) -> Any:
        return self._formula(_parsed(text), names)

    def _formula(self, node: ast.expr, names: _Names) -> Any:
        z3 = self.z3
        if isinstance(node, ast.BoolOp):
            parts = [self._formula(part, names) for part in node.values]
            return z3.And(*parts) if isinstance(node.op, ast.And) else z3.Or(*parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return z3.Not(self._formula(node.operand, names))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._comparison(node.left, node.ops[0], node.comparators[0], names)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "same_shape":
            first, *others = (self._expression(a, names) for a in node.args)
            return z3.And(*(self.same(first, other) for other in others))
        head, parts = _split(node)
        return self._function(head, [self._expression(part, names) for part in parts], z3.BoolSort())

    def _comparison(self, left: ast.expr, relation: ast.cmpop, right: ast.expr, names: _Names) -> Any:
        a, b = self._number(left, names), self._number(right, names)
        compare = _RELATIONS.get(type(relation))
        if a is not None and b is not None and compare:
            return compare(a, b)
        x, y = self._expression(left, names), self._expression(right, names)
        if isinstance(relation, ast.Eq):
            return x == y
        if isinstance(relation, ast.NotEq):
            return x != y
        return self._function(type(relation).__name__, [x, y], self.z3.BoolSort())

    def _number(self, node: ast.expr, names: _Names) -> Any:
        """A rank, or a number to compare it with; ``None`` for anything else."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return self.z3.IntVal(node.value)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "rank"
            and len(node.args) == 1
        ):
            return self.rank(self._expression(node.args[0], names))
        return None

    # ---- laws

    def _law(self, law: Law) -> Any:
        z3 = self.z3
        bound: list[Any] = []

        def make(name: str, sort: str) -> Any:
            bound.append(z3.Const(f"{law.name}.{name}", self.sorts[sort]))
            return bound[-1]

        names = _Names(make)
        left, right = self._term(read_term(law.left), names, {}), self._term(read_term(law.right), names, {})
        given = [self._condition(c, names) for c in law.where]
        ways = [(left, right), (right, left)] if law.both else [(left, right)]
        parts = []
        for here, there in ways:
            claim = z3.Implies(
                z3.And(self.ok(here), *given), z3.And(here == there, *(self.ok(t) for t in self._below(there)))
            )
            trigger = {"patterns": [here]} if _covers(here, bound) else {}
            parts.append(z3.ForAll(bound, claim, **trigger))
        return z3.And(*parts)

    def _subterms(self) -> list[Any]:
        """What a well-typed term is made of is well-typed."""
        z3, facts = self.z3, []
        for function in self.operators.values():
            arguments = [z3.Const(f"s{k}", function.domain(k)) for k in range(function.arity())]
            tensors = [a for a in arguments if a.sort() == self.sorts["tensor"]]
            if tensors:
                applied = function(*arguments)
                claim = z3.Implies(self.ok(applied), z3.And(*(self.ok(t) for t in tensors)))
                facts.append(z3.ForAll(arguments, claim, patterns=[self.ok(applied)]))
        return facts

    def _shape_facts(self) -> list[Any]:
        z3, tensor = self.z3, self.sorts["tensor"]
        x, y, z = (z3.Const(n, tensor) for n in ("fx", "fy", "fz"))
        same, rank, k = self.same, self.rank, z3.Const("fk", self.sorts["attribute"])
        shape, dim = self._shape_of, self._dim
        facts = [
            z3.ForAll([x], same(x, x), patterns=[rank(x)]),
            z3.ForAll([x, y], z3.Implies(same(x, y), z3.And(same(y, x), rank(x) == rank(y))), patterns=[same(x, y)]),
            z3.ForAll([x, y], z3.Implies(same(x, y), shape(x) == shape(y)), patterns=[same(x, y)]),
            z3.ForAll(
                [x, y, k],
                z3.Implies(same(x, y), dim(x, k) == dim(y, k)),
                patterns=[z3.MultiPattern(same(x, y), dim(x, k))],
            ),
            z3.ForAll(
                [x, y, z],
                z3.Implies(z3.And(same(x, y), same(y, z)), same(x, z)),
                patterns=[z3.MultiPattern(same(x, y), same(y, z))],
            ),
        ]
        for key, function in list(self.operators.items()):
            facts += self._facts_of(key, function)
        return facts

    def _shape_of(self, x: Any) -> Any:
        return self._function("shape", [x], self.sorts["attribute"])

    def _dim(self, x: Any, k: Any) -> Any:
        return self._function("dim", [x, self._literal(str(k)) if isinstance(k, int) else k], self.sorts["attribute"])

    def _facts_of(self, key: tuple[Any, ...], function: Any) -> list[Any]:
        """What the operator does to shapes; :data:`SHAPE_FACTS` says it in words."""
        z3, name = self.z3, key[0]
        arguments = [z3.Const(f"g{k}", function.domain(k)) for k in range(function.arity())]
        tensors = [a for a in arguments if a.sort() == self.sorts["tensor"]]
        t = function(*arguments)
        claims: list[Any] = []
        if len(tensors) == 1 and name == "?":
            claims.append(self.same(t, tensors[0]))
        if len(tensors) == 2 and name in ("?", "Max", "Min"):
            claims.append(z3.Implies(self.same(*tensors), self.same(t, tensors[0])))
            claims.append(z3.Implies(self.rank(tensors[1]) == 0, self.same(t, tensors[0])))
        if len(tensors) == 2 and name == "MatMul":
            a, b = (self.rank(v) for v in tensors)
            claims.append(z3.Implies(z3.And(a >= 2, b >= 2), z3.And(self.rank(t) >= a, self.rank(t) >= b)))
            sizes = [self._dim(t, 0) == self._dim(tensors[0], 0), self._dim(t, 1) == self._dim(tensors[1], 1)]
            claims.append(z3.Implies(z3.And(a == 2, b == 2), z3.And(self.rank(t) == 2, *sizes)))
        if name == "Concat":
            claims += [self.rank(t) == self.rank(v) for v in tensors]
        if name == "Conv":
            claims.append(self._dim(t, 1) == self._dim(tensors[1], 0))
        if name in ("Conv", "AveragePool", "MaxPool", "GlobalAveragePool", "Transpose"):
            claims.append(self.rank(t) == self.rank(tensors[0]))
        if not claims:
            return []
        claim = z3.Implies(self.ok(t), z3.And(*claims))
        return [z3.ForAll(arguments, claim, patterns=[t])]


#: What is taken for granted about shapes, in words; tests/synthesis/test_axioms.py checks it on random graphs.
SHAPE_FACTS = (
    "same_shape is an equivalence, and equal shapes have equal ranks and extents",
    (
        "a pointwise operator of one operand keeps its shape; of two operands too, where they have one shape or the "
        "second has rank 0"
    ),
    (
        "the rank of a product of two operands of rank two or more is the greater of theirs; of two matrices it has "
        "the rows of the first and the columns of the second"
    ),
    "a convolution has as many channels as its weights have rows",
    "a join, a convolution, a pool and a transposition keep the rank of their (first) operand",
)


def _spelled(text: str, let: dict[str, str]) -> str:
    """An expression with the names that ``let`` gives to expressions written out."""
    for name, value in let.items():
        if not name.startswith("?"):
            text = re.sub(
                rf"(?<![\w?\"]){re.escape(name)}(?![\w\"(])", functools.partial(_constant, f"({value})"), text
            )
    return text


def _constant(value: str, _: re.Match[str]) -> str:
    """A replacement that is taken as it stands, backslashes and all."""
    return value
