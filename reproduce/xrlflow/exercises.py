"""Small graphs to learn on that stand for no model: products with constants, one behind another.

A product whose every reader is a product with a constant need not be computed: each reader takes the constants'
product, folded, instead (`associate-matmul-right`). That pays with the last reader and nothing before; joining the
readers first (`merge-matmul-columns`) shortens it, at a loss. Where the width between is narrow, it pays at once or
never; where something other than a product reads it too, never.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlflow import Graph
from rlflow.frontends import load_model
from rlflow.frontends.builder import ModelBuilder


@dataclass(frozen=True)
class Stack:
    """``stages`` products behind one another, each but the last read by ``fan`` more, of ``rows`` rows. ``width``: of
    the stages; ``inner``: of every other stage, where it differs; ``wide``: of what the readers make. ``open_end``:
    whether the stages themselves are outputs too, so that nothing can be left out. ``between``: an operator after every
    second stage, which ends a chain.
    """

    stages: int
    fan: int
    rows: int = 256
    width: int = 256
    inner: int = 0
    wide: int = 256
    open_end: bool = False
    between: str = ""

    @property
    def name(self) -> str:
        """For the training card."""
        parts = [f"stages={self.stages}", f"fan={self.fan}", f"rows={self.rows}", f"width={self.width}"]
        parts += [f"inner={self.inner}"] if self.inner else []
        parts += [f"wide={self.wide}"] + (["open_end"] if self.open_end else [])
        return "stack?" + "&".join(parts + ([f"between={self.between}"] if self.between else []))

    def graph(self) -> Graph:
        """The graph, with seeded weights."""
        b = ModelBuilder("stack", seed=0)
        x = b.node("Relu", b.input("data", np.float32, (self.rows, self.width)))
        size = self.width
        for stage in range(self.stages):
            with b.scope(f"stage{stage}"):
                for reader in range(self.fan):
                    made = b.node("MatMul", [x, b.weight(f"reader{reader}", (size, self.wide), size)])
                    b.output(b.node("Tanh", made), f"read{stage}_{reader}")
                after = self.inner if self.inner and stage % 2 == 0 else self.width
                x, size = b.node("MatMul", [x, b.weight("stage", (size, after), size)]), after
                if self.open_end:
                    b.output(b.node("Identity", x), f"stage{stage}")
                if self.between and stage % 2:
                    x = b.node(self.between, x)
        b.output(b.node("Tanh", x), "last")
        return load_model(b.build()).graph
