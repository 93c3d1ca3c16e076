"""What whole models are timed and compared with: inputs, and the sizes that open dimensions have in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.errors import RuntimeCrashed, RuntimeRefused, brief

if TYPE_CHECKING:
    from rlflow.equivalence import ProbePlan
    from rlflow.equivalence.noise import Sessions
    from rlflow.equivalence.sizes import Sizes

#: How many random inputs at the usual sizes a comparison has.
USUAL = 2
#: A guess at the size of an open dimension that makes a run take longer is not used.
_GUESS_SECONDS = 20.0


@dataclass
class Inputs:
    """Feeds to time and to verify with, the ``sizes`` that the open dimensions have in them, and the ``plan`` of
    further ones to verify with.
    """

    feeds: list[dict[str, np.ndarray]]
    sizes: Sizes
    plan: ProbePlan | None = None
    refusal: str | None = None

    @property
    def notes(self) -> list[str]:
        """What had to be assumed, and why random values do not stand beside the given ones (``refusal``)."""
        return [note for note in (self.sizes.note, self.refusal) if note is not None]

    @classmethod
    def of(
        cls,
        worker: Sessions,
        source: bytes | str,
        graph: Any,
        dims: Mapping[str, int],
        data: Any,
        seed: int,
        fixed: Collection[str] = (),
        usual: int = USUAL,
    ) -> Inputs:
        """The user's inputs first where given, then ``usual`` random ones (integers in the range that the graph
        implies). Open dimensions in ``fixed`` have one size for ever; the others are verified at another size as well.

        Sizes that neither ``dims`` nor the data bind are guessed, and the guess is one that the runtime accepts. Random
        values that it refuses in place of given ones, as it does where an index has a meaning, are left out.
        ``usual=0``: one input to time with, the user's where given, and no plan.

        Raises :class:`RuntimeRefused` where it accepts no guess.
        """
        from rlflow.equivalence import for_single_input, load_input_data, make_inputs, plan_for, sizes
        from rlflow.graph.ranges import input_ranges

        infos = worker.interface(source).inputs
        if isinstance(data, (str, os.PathLike)):
            data = load_input_data([data])
        elif data is not None and not isinstance(data, Mapping):
            data = load_input_data(data)
        given = for_single_input(data, infos) if data else {}
        names = {info.name for info in infos}
        ranges = {name: pair for name, pair in input_ranges(graph).items() if name in names}
        # No random string makes sense.
        held = {info.name: given[info.name] for info in infos if info.name in given and info.dtype == "string"}

        def feeds_of(values: Mapping[str, int]) -> list[dict[str, np.ndarray]]:
            feeds = [make_inputs(infos, seed, ranges, given, values)] if given else []
            if given and set(held) == names:
                return feeds
            count = usual if given else max(usual, 1)
            return feeds + [make_inputs(infos, seed + number, ranges, held, values) for number in range(count)]

        candidates = list(sizes.guesses(infos, sizes.shown(infos, given, dims)))
        chosen, plan, refusal = candidates[0], None, None
        if chosen.guessed:
            feeds, chosen = _accepted(worker, source, candidates, feeds_of)
        else:
            feeds = feeds_of(chosen.values)
        if given:
            refusal = _refusal(worker, source, feeds[1:])
            feeds, held = (feeds, held) if refusal is None else (feeds[:1], given)
        if usual and set(held) != names:
            plan = plan_for(source, infos, chosen.values, ranges, seed=seed, fixed=fixed, given=held)
        return cls(feeds, chosen, plan, refusal)


def _refusal(worker: Sessions, source: bytes | str, feeds: Sequence[dict[str, np.ndarray]]) -> str | None:
    """A sentence where the model does not run on these random ``feeds``, else ``None``."""
    if not feeds:
        return None
    handle = worker.load(source)
    try:
        for one in feeds:
            worker.run(handle, one, time_limit=_GUESS_SECONDS)
    except (RuntimeRefused, RuntimeCrashed) as error:
        return f"The given inputs were compared alone, because the model does not run on random ones: {brief(error)}"
    finally:
        worker.unload(handle)
    return None


def _accepted(
    worker: Sessions,
    source: bytes | str,
    candidates: Sequence[Sizes],
    feeds_of: Callable[[Mapping[str, int]], list[dict[str, np.ndarray]]],
) -> tuple[list[dict[str, np.ndarray]], Sizes]:
    """The first of the guessed sizes that the model runs at, with its inputs."""
    handle = worker.load(source)
    refusal = ""
    try:
        for one in candidates:
            feeds = feeds_of(one.values)
            try:
                worker.run(handle, feeds[0], time_limit=_GUESS_SECONDS)
            except (RuntimeRefused, RuntimeCrashed) as error:
                refusal = refusal or str(error)
                continue
            return feeds, one
    finally:
        worker.unload(handle)
    raise RuntimeRefused(
        f"None of {len(candidates)} guesses at the sizes of the open dimensions runs: {refusal} {candidates[0].blame}"
    )


def verified(
    runs: Any,
    inputs: Inputs,
    original: bytes | str,
    optimised: bytes | str,
    seed: int,
    noise: Any = None,
    seconds: float | None = None,
    times: float = 1.0,
) -> Any:
    """The comparison of two models' outputs; the probes beyond ``inputs.feeds`` take ``seconds`` at most. ``times``: so
    many times the usual differences are allowed.
    """
    from rlflow import equivalence

    how = {"noise": noise, "seed": seed, "plan": inputs.plan, "seconds": seconds, "times": times}
    return equivalence.verify(runs, original, optimised, inputs.feeds, **how)
