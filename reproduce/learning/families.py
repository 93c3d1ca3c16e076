"""Cuts a block out of each exported architecture that config.json names, and writes it as text into families/.

    python reproduce/learning/families.py --exports FOLDER [--families NAME ...]

FOLDER holds what reproduce/exports/export.py writes: NAME-0.onnx, or NAME@older-0.onnx. A block is the ``nodes`` nodes
that follow in topological order after the part ``begin`` of the model: the same for all, so that nobody chose where a
search does well. The texts are in the repository, so the bench needs neither the exporters nor their packages.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from rlflow import frontends
from rlflow.graph import Graph
from rlflow.search.subgraphs import cut_out

HERE = Path(__file__).resolve().parent
CONFIG: dict[str, Any] = json.loads((HERE / "config.json").read_text(encoding="utf-8"))
#: ``further``: to train on beside the first half. ``fresh``: as ``unseen``, named later, and nobody looked into them.
PARTS = ("training", "unseen", "further", "fresh")
#: Floats that a constant may have to be written out: scales, epsilons.
FEW = 8


def block(whole: Graph, begin: float, nodes: int) -> Graph:
    """The ``nodes`` working nodes after the part ``begin`` of a graph, as a graph of their own."""
    working = [node for node in whole.order() if not whole.is_const(node) and whole.op(node) not in ("Input", "Opaque")]
    first = min(int(begin * len(working)), max(0, len(working) - nodes))
    return cut_out(whole, working[first : first + nodes]).graph


def without_weights(text: str) -> str:
    """The text of a graph with weights as digests, as those of many elements are: no rule reads them, and nothing is
    computed from a block.
    """

    def digested(found: re.Match[str]) -> str:
        values = [float(one) for one in found[3].split(",")]
        if len(values) <= FEW:
            return found[0]
        digest = hashlib.blake2b(f"{found[2]} {found[3]}".encode(), digest_size=16).hexdigest()
        even = " uniform" if min(values) == max(values) else ""
        return f"{found[1]}: {found[2]} = const @{digest} min={min(values)!r} max={max(values)!r}{even} finite"

    return re.sub(r"(?m)^(\w+): (f\w+\[[^]]*\]) = const \[([^]]*)\]$", digested, text)


def path_of(family: str) -> Path:
    """The file of a family's block."""
    return HERE / "families" / f"{family.replace('@', '-')}.txt"


def read(family: str) -> Graph:
    """The block of a family."""
    return Graph.parse(path_of(family).read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exports", type=Path, required=True, metavar="FOLDER")
    every = [name for part in PARTS for name in CONFIG[part]]
    parser.add_argument("--families", nargs="*", choices=every, metavar="NAME", default=every)
    options = parser.parse_args()
    (HERE / "families").mkdir(exist_ok=True)
    for family in options.families:
        graph = block(
            frontends.load_model(options.exports / f"{family}-0.onnx").graph, CONFIG["begin"], CONFIG["nodes"]
        )
        text = Graph.parse(without_weights(graph.text())).text()
        path_of(family).write_text(text + "\n", encoding="utf-8")
        print(f"{family}: {graph.num_working_nodes} nodes")


if __name__ == "__main__":
    main()
