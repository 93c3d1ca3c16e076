"""A trained policy of chains as a file, and the one that comes with the package."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rlflow.errors import UsageError
from rlflow.nn.checkpoint import Checkpoint, read_once, shipped
from rlflow.nn.fields import read_fields
from rlflow.nn.token_vocabulary import TokenVocabulary
from rlflow.search.levin.chain_policy import ChainPolicy, ChainShape

#: File of the policy that ships.
SHIPPED = shipped("levin")


@dataclass(frozen=True)
class LevinConfig:
    """How a policy of chains is trained.

    ``expansions``: graphs that a search on one model opens in a round; in the first round weights by hand lead it.
    ``even``: part of the probability that all candidates share alike while it learns. ``same``: of chains of the same
    rules on one model, so many are learnt from in a round. ``decay``: what the square of a weight's distance from that
    by hand counts beside the loss of one step. ``passes``: of Adam over all chains, with the learning rate ``lr``.
    ``families``: of each rule of the vocabulary, its family.
    """

    expansions: int = 12_000
    even: float = 0.1
    same: int = 2
    decay: float = 0.15
    passes: int = 400
    lr: float = 0.1
    families: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wrong = [name for name in ("expansions", "same", "passes") if getattr(self, name) < 1]
        wrong += [] if 0.0 < self.even <= 1.0 else ["even"]
        wrong += [] if self.decay >= 0.0 else ["decay"]
        wrong += [] if self.lr > 0.0 else ["lr"]
        if wrong:
            raise UsageError(f"The training option {wrong[0]!r} is {getattr(self, wrong[0])}, which is out of range.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> LevinConfig:
        """The reverse of :meth:`to_dict`."""
        return cls(**{**plain, "families": tuple(plain["families"])})

    def with_options(self, options: Mapping[str, str]) -> LevinConfig:
        """With values from text by name. Raises :class:`UsageError`."""
        return dataclasses.replace(self, **read_fields(LevinConfig, options))

    def numbered(self) -> tuple[np.ndarray, int]:
        """The number of each rule's family, and how many there are."""
        names = {name: i for i, name in enumerate(sorted(set(self.families)))}
        return np.array([names[name] for name in self.families], dtype=np.int64), len(names)


@dataclass
class LevinCheckpoint(Checkpoint):
    """Of a policy of chains: ``config`` is a :class:`LevinConfig`, the weights are its groups."""

    kind: ClassVar[str] = "policy of chains"
    verb: ClassVar[str] = "levin"
    config_class: ClassVar[Any] = LevinConfig

    def policy(self) -> ChainPolicy:
        """The policy for the rules of its own vocabulary. Raises :class:`ModelError` where the weights do not fit."""
        with self.fitting():
            families, count = self.config.numbered()
            if len(families) != len(self.vocabulary.rules):
                raise ValueError(f"{len(families)} families of {len(self.vocabulary.rules)} rules")
            shape = ChainShape(len(families), count)
            return ChainPolicy(shape, families, shape.joined(self.weights))

    @classmethod
    def of(cls, policy: ChainPolicy, rules: Sequence[str], config: LevinConfig, **more: Any) -> LevinCheckpoint:
        """With the weights of ``policy`` for ``rules``."""
        weights = {name: array.astype(np.float32) for name, array in policy.shape.split(policy.flat).items()}
        return cls(config, TokenVocabulary((), tuple(rules)), weights, **more)


def load_chains(path: str | os.PathLike[str] | None = None) -> tuple[ChainPolicy, tuple[str, ...]]:
    """The policy of a checkpoint (default: the shipped one) and the rules it knows; read once per file and date."""
    return read_once(_read, path or SHIPPED)


def _read(path: str) -> tuple[ChainPolicy, tuple[str, ...]]:
    checkpoint = LevinCheckpoint.load(path)
    return checkpoint.policy(), checkpoint.vocabulary.rules
