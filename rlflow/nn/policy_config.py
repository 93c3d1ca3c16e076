"""The form of a policy's network."""

from __future__ import annotations

from dataclasses import dataclass

ENCODERS = ("delta", "meta-graph")
MESSAGES = ("attention", "mean", "sum")


@dataclass(frozen=True)
class PolicyConfig:
    """``encoder``: ``delta`` encodes the state's graph once, and a candidate is its rule, the nodes it touches and what
    it changes; ``meta-graph`` is X-RLflow's form, which encodes every candidate's graph. ``message``: ``attention``,
    ``mean`` or ``sum``. ``rule_embedding``: whether rules are told apart. ``prior``: the score that a candidate begins
    with for its share of the largest gain (a trained parameter; 0: none).
    """

    encoder: str = "delta"
    message: str = "attention"
    hidden: int = 64
    layers: int = 3
    heads: int = 4
    rule_size: int = 16
    rule_embedding: bool = True
    prior: float = 0.0

    @property
    def needs_children(self) -> bool:
        """Whether observations have to hold every candidate's graph."""
        return self.encoder == "meta-graph"
