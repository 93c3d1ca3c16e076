"""How long the sentences of a page are.

python tests/sentences.py               each page: sentences, average and longest; exit 1 above the bars
python tests/sentences.py docs/cost.md  its sentences above the bar

Code, headings and link targets are no prose. A table's cells are read as sentences, but do not lower the average.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
#: Words: the average of a page, and the longest sentence that it may have.
AVERAGE, LONGEST = 20.0, 40
#: Pages that a newcomer reads first. The others are measured and shown.
HELD = (
    "README.md", "docs/tour.md", "docs/faq.md", "docs/worldmodel.md", "docs/search.md", "docs/cost.md",
    "docs/agents.md", "docs/comparison.md", "docs/rules.md", "docs/settings.md", "docs/generator.md", "docs/metrics.md",
    "docs/eqsat.md", "docs/gpu.md", "docs/environment.md", "docs/kernels.md", "docs/integrations.md", "docs/split.md",
    "docs/workers.md", "docs/compat-taso.md", "docs/architecture.md", "docs/shrink.md", "docs/add-a-cost-model.md",
    "docs/add-a-runtime.md", "docs/add-a-strategy.md", "docs/add-a-taso-operator.md", "docs/add-a-verb.md",
    "docs/add-a-zoo-model.md", "docs/add-an-agent.md", "docs/add-an-operator.md", "docs/go.md", "docs/tuner.md",
)  # fmt: skip
_FENCE = re.compile(r"^ *```.*?^ *```\s*$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]+`")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|vs|etc)\.")
_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_]*[A-Z0-9\u00c0-\u00de])")
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)")


class Sentence(NamedTuple):
    text: str
    words: int
    in_table: bool


def sentences(page: str) -> list[Sentence]:
    """The sentences of a page of Markdown."""
    text = _CODE.sub("Code", _LINK.sub(r"\1", _COMMENT.sub("", _FENCE.sub("\n\n", page))))
    found: list[Sentence] = []
    for block in _BLOCK.split(_ABBREVIATION.sub(r"\1", text)):
        prose = []
        for line in block.strip().splitlines():
            if line.lstrip().startswith("|"):
                cells = line.strip().strip("|").split("|")
                found += [one for cell in cells for one in _split(cell, True)]
            elif not line.startswith("#"):
                prose.append(re.sub(r"^\s*([-*]|\d+\.)\s+", "", line))
        found += _split(" ".join(prose), False)
    return found


def _split(text: str, in_table: bool) -> list[Sentence]:
    parts = [(part.strip(), len(re.findall(r"\S*\w\S*", part))) for part in _END.split(text)]
    return [Sentence(part, words, in_table) for part, words in parts if words]


def average(found: list[Sentence]) -> float:
    """Words a sentence, tables left out."""
    prose = [one.words for one in found if not one.in_table]
    return sum(prose) / len(prose) if prose else 0.0


def faults(place: str, page: str) -> list[str]:
    """What is too long in a page, as sentences; none is the aim."""
    found = sentences(page)
    told = [f"{place}: {one.words} words (at most {LONGEST}): {one.text}" for one in found if one.words > LONGEST]
    if average(found) >= AVERAGE:
        told.append(f"{place}: {average(found):.1f} words a sentence on average; expected under {AVERAGE:.0f}")
    return told


def main(names: list[str]) -> int:
    """Print the figures, or the faults of the pages that are named."""
    if names:
        told = [one for name in names for one in faults(name, (ROOT / name).read_text(encoding="utf-8"))]
        print("\n".join(told) or "nothing is too long")
        return 1 if told else 0
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    bad: list[str] = []
    for path in pages:
        name, page = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        found = sentences(page)
        longest = max((one.words for one in found), default=0)
        bad += faults(name, page) if name in HELD else []
        held = "  held" if name in HELD else ""
        print(f"{name:32} {len(found):4} sentences  average {average(found):5.1f}  longest {longest:3}{held}")
    if bad:
        print("\n".join(bad), file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
