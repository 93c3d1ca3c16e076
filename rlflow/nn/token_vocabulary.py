"""What a model has embeddings for, by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rlflow.nn.observation import STOP_RULE, Observation
from rlflow.ops import op_names

#: Embedding rows that every vocabulary has: of rules, to stop and a rule it does not know; of operators, the unknown.
STOP_ROW, UNKNOWN_RULE, UNKNOWN_OP = 0, 1, 0


@dataclass(frozen=True)
class TokenVocabulary:
    """The operators and rules that a model has embeddings for, by name, so that it fits other tables and libraries."""

    ops: tuple[str, ...]
    rules: tuple[str, ...]

    @classmethod
    def of(cls, rules: Iterable[str]) -> TokenVocabulary:
        """The present operator table, and these rules."""
        return cls(tuple(op_names()), tuple(dict.fromkeys(rules)))

    @cached_property
    def op_rows(self) -> np.ndarray:
        """Embedding row of each operator of the present table."""
        known = {name: row for row, name in enumerate(self.ops, 1)}
        return np.array([known.get(name, UNKNOWN_OP) for name in op_names()], dtype=np.int64)

    def rule_rows(self, rule_names: Sequence[str]) -> np.ndarray:
        """Embedding row of each rule number of a problem, from -1 (stop) on: ``rows[number + 1]``."""
        known = {name: row for row, name in enumerate(self.rules, 2)}
        return np.array([STOP_ROW, *(known.get(name, UNKNOWN_RULE) for name in rule_names)], dtype=np.int32)

    @staticmethod
    def translate(seen: Observation, rows: np.ndarray) -> Observation:
        """The observation with embedding rows for rule numbers; ``rows`` as :meth:`rule_rows` gives them."""
        return seen._replace(rule=rows[seen.rule - STOP_RULE])
