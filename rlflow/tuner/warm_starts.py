"""What a tuning may begin with: times of other subgraphs, and an actor that was trained on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlflow.tuner import kernel_features
from rlflow.tuner.engines import Engine, TunedSubgraph
from rlflow.tuner.program_scores import KernelRidge, levels_of
from rlflow.tuner.recorded import RecordedEngine
from rlflow.tuner.spaces import Space, TensorProgram

#: Width and ridge of the prior's kernel: wide and cautious, since what it is asked about is another size.
_WIDTH, _RIDGE = 1.4, 0.1
#: Programs that a prior learns from: its cost grows with the cube of their number.
_MOST_LEARNT = 1024

#: A recorded table of Winograd's kernels.
SHIPPED = Path(__file__).with_name("winograd.json")

#: Levels [n] of features [n, f].
Levels = Callable[[np.ndarray], np.ndarray]


class Observed(NamedTuple):
    """A subgraph with features [n, f] and seconds [n] of programs of it."""

    subgraph: TunedSubgraph
    features: np.ndarray
    seconds: np.ndarray


class TransferPrior:
    """Learns levels from subgraphs that were measured, for others of the same family and space.

    The sizes are among the features, so that neighbours count more. A subgraph's own times are for its cost model,
    which learns what the prior does not explain; a comparison leaves out the subgraph that is tuned.
    """

    def __init__(self, observed: Iterable[Observed]) -> None:
        found: dict[tuple[str, Space, int], list[tuple[np.ndarray, np.ndarray]]] = {}
        for one in observed:
            if len(one.seconds):
                found.setdefault(_key(one.subgraph), []).append((one.features, levels_of(one.seconds)))
        self._models = {key: _learnt(pairs) for key, pairs in found.items()}

    @classmethod
    def of(cls, engine: Engine, seconds: Sequence[Mapping[TensorProgram, float]]) -> TransferPrior:
        """From times of programs of each subgraph of an engine, in their order."""
        return cls(
            Observed(subgraph, engine.features(number, list(known)), np.array(list(known.values())))
            for number, (subgraph, known) in enumerate(zip(engine.subgraphs, seconds, strict=True))
            if known
        )

    def levels(self, subgraph: TunedSubgraph) -> Levels | None:
        """What predicts levels of a subgraph's programs; ``None``: nothing like it was measured."""
        model = self._models.get(_key(subgraph))
        return None if model is None else model.predict


def shipped_prior(subgraphs: Sequence[TunedSubgraph]) -> TransferPrior | None:
    """What the table in this package says of subgraphs of a model; ``None``: there is none like its own among them.

    It was recorded on another machine than the user's, perhaps, and before a kernel got another sketch. Measurements
    correct what differs.
    """
    table = RecordedEngine.read(SHIPPED)
    kinds = {_key(one) for one in subgraphs}
    observed = [
        Observed(moved, kernel_features.features(moved, list(times)), np.array(list(times.values())))
        for one, known in zip(table.subgraphs, table.seconds, strict=True)
        for family, space, sizes in kinds
        if (family, sizes) == (one.family, len(one.sizes)) and (times := _in_space(known, one.space, space))
        for moved in [replace(one, space=space)]
    ]
    return TransferPrior(observed) if observed else None


def _in_space(times: Mapping[TensorProgram, float], old: Space, new: Space) -> dict[TensorProgram, float]:
    """The times of those programs whose sketch ``new`` has too, numbered as there."""
    numbers = {sketch: number for number, sketch in enumerate(new.sketches)}
    return {
        TensorProgram(numbers[old.sketches[one.sketch]], one.values): seconds
        for one, seconds in times.items()
        if old.sketches[one.sketch] in numbers
    }


class WarmStart(NamedTuple):
    """``prior``: what the cost models begin with. ``weights``: of the actor and critic. ``None``: nothing."""

    prior: TransferPrior | None = None
    weights: Mapping[str, np.ndarray] | None = None


def _key(subgraph: TunedSubgraph) -> tuple[str, Space, int]:
    return subgraph.family, subgraph.space, len(subgraph.sizes)


def _learnt(pairs: list[tuple[np.ndarray, np.ndarray]]) -> KernelRidge:
    """From as many programs of each subgraph, where there are too many."""
    share = max(2, _MOST_LEARNT // len(pairs))
    kept = [_share(*pair, share) for pair in pairs]
    features, levels = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    model = KernelRidge((_WIDTH,), (_RIDGE,), _MOST_LEARNT)
    model.fit(features, levels)
    return model


def _share(features: np.ndarray, levels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The best ones, and as many others evenly over what is left."""
    order = np.argsort(-levels, kind="stable")
    best, rest = order[: count // 2], order[count // 2 :]
    others = rest[np.linspace(0, len(rest) - 1, min(len(rest), count - len(best))).astype(np.int64)]
    some = np.concatenate([best, others])
    return features[some], levels[some]
