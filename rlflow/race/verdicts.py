"""The sentences of the final comparison."""

from __future__ import annotations

import math

from rlflow.price.timing import Speedup
from rlflow.race.evidence import Evidence
from rlflow.race.sequential import LEAST_BLOCKS, half_interval, next_look

#: An interval this wide on either side (natural logarithm) cannot tell the differences that rewrites make.
NOISY = 0.05
_CUT = " The comparison was interrupted after that."


def gain(found: Speedup, cut: bool) -> str:
    return f"The chosen candidate is {figures(found)} on samples that did not choose it.{_CUT if cut else ''}"


def no_gain(found: Speedup, alpha: float, cut: bool) -> str:
    return (
        f"No gain: the chosen candidate is {figures(found)} on fresh samples, not faster at the {alpha:.0%} level."
        f"{_CUT if cut else ''}"
    )


def undecided(found: Speedup, alpha: float, cut: bool, kept: bool) -> str:
    """Time or patience ended before a claim was made or hopeless; ``kept``: the next run goes on with the blocks."""
    noisy = half_interval(found.low, found.high) > NOISY
    begin = "This machine is too noisy to tell in the time given" if noisy else "Undecided in the time given"
    look = next_look(found.pairs)
    on = f"The {found.pairs} blocks are kept, and the next run goes on from them." if kept else ""
    need = f" (it is looked again after {look})" if kept and look is not None else ""
    return (
        f"{begin}: the chosen candidate is {figures(found)} on fresh samples, not faster at the {alpha:.0%} level yet, "
        f"so the original is kept. {on}{need}{' ' if kept else ''}Close other programs, or give more time "
        f"(--gate-seconds).{_CUT if cut else ''}"
    )


def interrupted(blocks: int) -> str:
    return (
        f"The final comparison was interrupted after {blocks} of the {LEAST_BLOCKS} blocks that a claim needs, so the "
        "original is kept."
    )


def too_few(blocks: int, elapsed: float, seconds: float, selection: int, kept: bool) -> str:
    """The time was over before the blocks that a claim needs."""
    each = elapsed / (blocks + 1)
    on = "The next run goes on from them, or give" if kept else "Give"
    return (
        f"No claim: of the {LEAST_BLOCKS} blocks of timings that one needs, {blocks} took {elapsed:.0f} s where "
        f"{seconds:g} s were given, so the original is kept. {on} the final comparison about "
        f"{math.ceil(each * (LEAST_BLOCKS + selection) / 10) * 10} s (--gate-seconds)."
    )


def no_time(elapsed: float, at_most: float) -> str:
    """What came before the blocks took the time."""
    return (
        f"No claim: to open and try the models took {elapsed:.1f} s of the {at_most:.3g} s that the final comparison "
        "may take, and no block of timings that counts fits into the rest, so the original is kept. Give more time "
        "(--budget, or --gate-seconds)."
    )


def figures(found: Speedup) -> str:
    return (
        f"{found.value:.3f} times as fast (95 % interval {found.low:.3f} to {found.high:.3f}, p = {found.p_value:.2g})"
    )


# --- what is said of kept comparisons ---------------------------------------------------------------------------------


def repeated(known: Evidence, found: Speedup, fresh: int) -> str:
    blocks = f"{len(known.ratios)} blocks of {known.day} and {fresh} fresh ones"
    if known.claimed:
        return f"The chosen candidate is {figures(found)} on samples that did not choose it: {blocks}."
    return (
        f"No gain: it was not shown on {known.day}, and fresh blocks do not contradict that (--fresh compares again); "
        f"the chosen candidate is {figures(found)} by {blocks}."
    )


def repeated_note(known: Evidence, fresh: int) -> str:
    return (
        f"{len(known.ratios)} blocks ({known.rounds} rounds) of the final comparison are from {known.day}; {fresh} "
        "fresh ones do not contradict them."
    )


def gone_on(known: Evidence, fresh: int) -> str:
    return (
        f"The final comparison of {known.day} was left undecided after {len(known.ratios)} blocks ({known.rounds} "
        f"rounds); it went on with {fresh} fresh ones."
    )


def thrown_away(known: Evidence, why: str) -> str:
    return f"The comparison kept from {known.day} was thrown away, because {why}."
