"""The last words of ``make gpu-check``: one table of what was measured on a GPU, and what was not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: What this check measures: a key of its JSON file, what it is, and what a row is called.
MEASURED = (
    ("cases", "the tests' graphs beside the reference", "graphs"),
    ("operators", "each operator beside torch", "operators"),
    ("calibration", "prices against replayed models", "models"),
    ("optimize", "`optimize --cost cudnn`, end to end", "models"),
)
#: What it does not measure, and what is known instead.
NOT_MEASURED = (
    ("a model that keeps channels last throughout", "each convolution changes the layout itself and pays for it"),
    ("whole models in tf32, float16 or bfloat16", "their regions are priced; the final comparison is in float32"),
    ("shapes that change, several streams, several GPUs", "not built"),
    ("energy", "not built"),
)


def rows(found: Mapping[str, Any] | None, planned: Mapping[str, int], reason: str = "") -> list[tuple[str, str, str]]:
    """(what, whether it is measured, what is known). ``found``: the JSON file's content, None where nothing could run,
    for the ``reason``; ``planned``: how many rows each stage would have.
    """
    table = []
    for key, what, unit in MEASURED:
        done, wanted = len(found[key]) if found else 0, planned[key]
        measured = "no" if done == 0 else "yes" if done >= wanted else "in part"
        table.append(
            (
                what,
                measured,
                _known(key, found[key], done, wanted, unit) if found and done else reason or f"0 of {wanted} {unit}",
            )
        )
    table += [(what, "no", known) for what, known in NOT_MEASURED]
    return table


def _known(key: str, values: Sequence[Mapping[str, Any]], done: int, wanted: int, unit: str) -> str:
    start = f"{done} of {wanted} {unit}"
    if key == "cases":
        return f"{start}; off by at most {max(float(row['difference']) for row in values):.1g} of the largest value"
    if key == "operators":
        ratios = sorted(float(row["ratio"]) for row in values)
        return f"{start}; {ratios[len(ratios) // 2]:.2f} times torch's time in the middle, {ratios[-1]:.2f} at worst"
    if key == "calibration":
        return f"{start}; error at most {max(float(row['error']) for row in values):.1%}"
    gains = sum(bool(row["report"]["improved"]) for row in values)
    return f"{start}; a confirmed gain on {gains}"


def text(found: Mapping[str, Any] | None, planned: Mapping[str, int], reason: str = "") -> str:
    """The table in columns, under the GPU's name."""
    table = [("what", "measured", "what is known"), *rows(found, planned, reason)]
    widths = [max(len(row[column]) for row in table) for column in range(2)]
    lines = [f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}".rstrip() for row in table]
    lines.insert(1, "-" * max(map(len, lines)))
    device = f"On {found['gpu']['device']}." if found else "Nothing was measured on a GPU."
    return "\n".join([device, *lines])
