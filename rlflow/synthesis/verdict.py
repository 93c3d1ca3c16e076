"""What the prover says about a rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlflow.rewrite import ProofRecord

STATUSES = ("proved", "refuted", "identity", "undecided")
KINDS = ("statement", "shape", "value", "float", "numerics")


@dataclass(frozen=True)
class Counterexample:
    """A graph on which a rule is false: its text, and where the elements differ, values that show it.

    ``values``: nested lists of exact numbers (as text, "2" or "-1/3") by the name of an input or a constant in
    ``graph``; ``before`` and ``after``: output number ``output`` of both sides. All empty where the target is
    ill-typed, or where only a random element of the field is known to tell the sides apart.
    """

    graph: str
    values: dict[str, Any] = field(default_factory=dict)
    output: int = 0
    before: Any = None
    after: Any = None

    def text(self) -> str:
        """The graph, then the values, one line each."""
        lines = [self.graph.strip()]
        lines += [f"with {name} = {_plain(value)}" for name, value in self.values.items()]
        if self.before is not None:
            lines.append(f"output {self.output} is {_plain(self.before)} before, {_plain(self.after)} after")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "graph": self.graph,
            "values": self.values,
            "output": self.output,
            "before": self.before,
            "after": self.after,
        }


def _plain(value: Any) -> str:
    return "[" + ", ".join(_plain(v) for v in value) + "]" if isinstance(value, list) else str(value)


@dataclass
class Verdict:
    """What is known of a rule.

    ``status``: "proved"; "refuted"; "identity" (wherever it fires both sides are one graph in our form: nothing to
    rewrite); "undecided". ``kind`` of a refutation: "statement" (it does not compile), "shape" (the target is ill-typed
    or of another type), "value" (an exact counterexample), "float" (double precision disagrees, or a function leaves
    its domain), "numerics" (the declared class does not hold). ``counterexample`` is the smallest one found as text,
    ``example`` the same as data; both ``None`` where there is none. ``laws``: of a derivation by z3, those it used.
    """

    rule: str
    status: str
    kind: str = ""
    reason: str = ""
    counterexample: str | None = None
    record: ProofRecord | None = None
    example: Counterexample | None = None
    fired: int = 0
    wild_fired: int = 0
    tries: int = 0
    seconds: float = 0.0
    laws: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        return self.status == "proved"

    def to_json(self) -> dict[str, Any]:
        """A JSON object without times: equal runs write equal bytes."""
        return {
            "rule": self.rule,
            "status": self.status,
            "kind": self.kind,
            "reason": self.reason,
            "counterexample": self.example.to_json() if self.example else None,
            "fired": self.fired,
            "tries": self.tries,
            "proof": self.record.to_json() if self.record else None,
        }
