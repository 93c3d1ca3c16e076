"""Evolutionary search with a cost model, in the manner of TVM's MetaSchedule (Shao et al., NeurIPS 2022), which follows
Ansor; a baseline for HARL behind the same interface.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlflow.errors import UsageError
from rlflow.tuner.spaces import GROUPS, Sketch, TensorProgram
from rlflow.tuner.tasks import TuningTask

#: How often a mutation is of each group, where the sketch has it (MetaSchedule's).
_SHARES = {"tile": 0.9, "compute_at": 0.05, "parallel": 0.02, "unroll": 0.03}
_TINY = 1e-9


@dataclass(frozen=True)
class EvolutionConfig:
    """``population`` programs, of which the part ``elite`` are the fastest that are known, go through ``generations``;
    each program of the next one is drawn by its score and mutated with probability ``mutation``. The values are
    MetaSchedule's; Ansor has a population of 2048.
    """

    population: int = 512
    generations: int = 4
    mutation: float = 0.85
    elite: float = 0.2

    def __post_init__(self) -> None:
        parts = 0 <= self.mutation <= 1 and 0 <= self.elite <= 1
        if self.population < 1 or self.generations < 1 or not parts:
            raise UsageError(f"A population cannot evolve so: {self}. Expected counts of 1 or more, parts of 0 to 1.")


def evolved(
    task: TuningTask, sketch: int | None, config: EvolutionConfig, rng: np.random.Generator
) -> dict[TensorProgram, float]:
    """Every program of all generations, with its score; of ``sketch``, or of all."""
    space = task.subgraph.space
    best = task.ranked(sketch)[: int(config.elite * config.population)]
    people = [*best, *space.random(rng, config.population - len(best), sketch)]
    seen: dict[TensorProgram, float] = {}
    for generation in range(config.generations + 1):
        scores = task.predict(people)
        seen.update(zip(people, scores.tolist(), strict=True))
        if generation == config.generations:
            break
        chances = np.maximum(scores, _TINY)
        parents = rng.choice(len(people), config.population, p=chances / chances.sum())
        changes = rng.random(config.population) < config.mutation
        people = [
            TensorProgram(one.sketch, mutated(space.sketches[one.sketch], one.values, rng)) if change else one
            for one, change in zip((people[at] for at in parents.tolist()), changes.tolist(), strict=True)
        ]
    return seen


def mutated(sketch: Sketch, values: tuple[int, ...], rng: np.random.Generator) -> tuple[int, ...]:
    """A program with one parameter changed: a factor, prime or not, moves within a tile, or an ordered choice takes any
    other value. What cannot change comes back as it is.
    """
    kinds = _kinds(sketch)
    if not kinds:
        return values
    below = rng.random() * kinds[-1].upto
    kind = next((one for one in kinds if below < one.upto), kinds[-1])
    at = kind.places[int(rng.integers(len(kind.places)))]
    if not kind.split:
        return _stepped(sketch, at, values, rng)
    tile, begin = sketch.tiles[at], sketch.begins[at]
    end = begin + tile.parts
    near = _neighbours(values[begin:end], tile.innermost)
    return (*values[:begin], *near[int(rng.integers(len(near)))], *values[end:]) if near else values


class _Kind(NamedTuple):
    """Parameters that are mutated alike: tiles (``split``) or ordered choices, by number; ``upto``: the shares of this
    kind and of those before it.
    """

    split: bool
    places: tuple[int, ...]
    upto: float


@functools.lru_cache(maxsize=256)
def _kinds(sketch: Sketch) -> tuple[_Kind, ...]:
    tiles = tuple(at for at, tile in enumerate(sketch.tiles) if len(tile.options) > 1)
    found = [(True, tiles, _SHARES["tile"])] if tiles else []
    for group in GROUPS:
        places = tuple(at for at, one in enumerate(sketch.steps) if one.group == group and len(one.values) > 1)
        found += [(False, places, _SHARES[group])] if places else []
    sums = np.cumsum([share for *_, share in found]).tolist()
    return tuple(_Kind(split, places, upto) for (split, places, _), upto in zip(found, sums, strict=True))


@functools.lru_cache(maxsize=1 << 14)
def _neighbours(parts: tuple[int, ...], innermost: int) -> tuple[tuple[int, ...], ...]:
    """The splits in which one factor is in another part."""
    found = []
    for source, target in itertools.permutations(range(len(parts)), 2):
        for factor in (one for one in range(2, parts[source] + 1) if parts[source] % one == 0):
            new = list(parts)
            new[source] //= factor
            new[target] *= factor
            if not innermost or new[-1] <= innermost:
                found.append(tuple(new))
    return tuple(found)


def _stepped(sketch: Sketch, at: int, values: tuple[int, ...], rng: np.random.Generator) -> tuple[int, ...]:
    column, count = sketch.split_columns + at, len(sketch.steps[at].values)
    other = (values[column] + 1 + int(rng.integers(count - 1))) % count
    return (*values[:column], other, *values[column + 1 :])
