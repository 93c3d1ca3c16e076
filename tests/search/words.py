"""A rewriting system over words that behaves like the core's State: small enough to enumerate, so that optima are
known.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np


class Letter(NamedTuple):
    identifier: int
    symbol: str


class WordRule(NamedTuple):
    name: str
    left: str
    right: str


@dataclass(frozen=True)
class Word:
    letters: tuple[Letter, ...]

    @property
    def text(self) -> str:
        return "".join(letter.symbol for letter in self.letters)

    @property
    def digest(self) -> str:
        return hashlib.blake2b(self.text.encode(), digest_size=16).hexdigest()

    @property
    def num_nodes(self) -> int:
        return len(self.letters)

    def order(self) -> list[int]:
        return [letter.identifier for letter in self.letters]

    def is_const(self, node: int) -> bool:
        return False

    def op(self, node: int) -> str:
        return next(letter.symbol for letter in self.letters if letter.identifier == node)

    # A letter is a node with one output, which the next letter reads; the value has the letter's number.

    def node_inputs(self, node: int) -> list[int]:
        at = self.order().index(node)
        return [self.letters[at - 1].identifier] if at else [-1]

    def node_outputs(self, node: int) -> list[int]:
        return [node]

    def producer(self, value: int) -> int:
        return value

    def users(self, value: int) -> list[tuple[int, int]]:
        at = self.order().index(value)
        return [(letter.identifier, 0) for letter in self.letters[at + 1 : at + 2]]


class WordMoves:
    def __init__(self, state: WordState) -> None:
        children = [state.child(i) for i in range(len(state.matches))]
        self.rule = np.array([rule for rule, _ in state.matches], dtype=np.uint32)
        self.digest = np.array([list(bytes.fromhex(child.digest)) for child in children], dtype=np.uint8).reshape(
            -1, 16
        )
        self.delta_ms = np.array([state.price(child) - state.cost for child in children], dtype=float)
        self.unknown = np.zeros(len(children), dtype=np.uint32)
        rules = [state.rules[rule] for rule, _ in state.matches]
        self.nodes_added = np.array([len(rule.right) for rule in rules], dtype=np.int32)
        self.nodes_removed = np.array([len(rule.left) for rule in rules], dtype=np.int32)
        spans = [range(at, at + len(state.rules[rule].left)) for rule, at in state.matches]
        self.touched_begin = np.cumsum([0, *map(len, spans)]).astype(np.uint32)
        self.touched = np.array([state.graph.letters[p].identifier for span in spans for p in span], dtype=np.uint32)
        self.weight_bytes = np.array([child.text.count("W") * 1000 for child in children], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rule)


@dataclass
class WordState:
    graph: Word
    rules: Sequence[WordRule]
    prices: dict[str, float]
    fresh: itertools.count = field(default_factory=lambda: itertools.count(10_000))

    def __post_init__(self) -> None:
        text = self.graph.text
        self.matches = [
            (number, at)
            for number, rule in enumerate(self.rules)
            for at in range(len(text) - len(rule.left) + 1)
            if text.startswith(rule.left, at)
        ]
        self.cost = self.price(self.graph)
        self.weight_bytes = 1000 * text.count("W")

    def price(self, word: Word) -> float:
        return sum(self.prices[letter.symbol] for letter in word.letters)

    def child(self, i: int) -> Word:
        rule, at = self.rules[self.matches[i][0]], self.matches[i][1]
        new = tuple(Letter(next(self.fresh), symbol) for symbol in rule.right)
        letters = self.graph.letters
        return Word(letters[:at] + new + letters[at + len(rule.left) :])

    def open(self, i: int) -> WordState:
        return WordState(self.child(i), self.rules, self.prices, self.fresh)

    def moves(self) -> WordMoves:
        return WordMoves(self)

    def key(self, i: int) -> list[int]:
        rule, at = self.matches[i]
        return list(range(at, at + len(self.rules[rule].left)))

    def find(self, name: str, key: Sequence[int]) -> int:
        for i, (rule, _) in enumerate(self.matches):
            if self.rules[rule].name == name and self.key(i) == list(key):
                return i
        return -1

    def step(self, name: str, key: Sequence[int]) -> WordState | None:
        i = self.find(name, key)
        return self.open(i) if i >= 0 else None


def word_state(text: str, rules: Iterable[str], prices: dict[str, float]) -> WordState:
    """``rules`` are written ``left>right``."""
    parsed = [WordRule(rule, *rule.split(">")) for rule in rules]
    return WordState(Word(tuple(Letter(i, symbol) for i, symbol in enumerate(text))), parsed, prices)


def optimum(state: WordState) -> float:
    """Cheapest reachable word, by enumerating all."""
    seen, waiting, best = {state.graph.digest}, [state], state.cost
    while waiting:
        here = waiting.pop()
        best = min(best, here.cost)
        for i in range(len(here.matches)):
            child = here.open(i)
            if child.graph.digest not in seen:
                seen.add(child.graph.digest)
                waiting.append(child)
    return best
