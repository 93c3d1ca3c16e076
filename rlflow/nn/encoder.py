"""A graph neural network over the nodes and tensors of a graph, along the data and against it.

A layer gathers messages from a node's operands and from its readers, each by attention as in GATv2 (Brody, Alon and
Yahav 2022) or by mean or sum, and adds what it makes of them to what it knew (residual, normalised before).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlflow.errors import UsageError
from rlflow.graph.features import EDGE_COLUMNS, NODE_COLUMNS
from rlflow.nn.batch import GraphBatch
from rlflow.nn.policy_config import MESSAGES
from rlflow.nn.segment import segment_max, segment_mean, segment_softmax, segment_sum

_DTYPES = 32  # ONNX's numbers are below
_SLOPE = 0.2


class Messages(nn.Module):
    """What each node hears along edges: ``(h [n, hidden], sender [m], receiver [m], edge [m, e]) -> [n, hidden]``."""

    def __init__(self, hidden: int, kind: str, heads: int) -> None:
        super().__init__()
        self.kind, self.heads = kind, heads
        self.send = nn.Linear(hidden, hidden)
        self.receive = nn.Linear(hidden, hidden, bias=False)
        self.along = nn.Linear(len(EDGE_COLUMNS), hidden, bias=False)
        if kind == "attention":
            self.score = nn.Parameter(torch.randn(heads, hidden // heads) * (heads / hidden) ** 0.5)

    def forward(self, h: Tensor, sender: Tensor, receiver: Tensor, edge: Tensor) -> Tensor:
        sent = self.send(h)[sender]
        heard = sent + self.receive(h)[receiver] + self.along(edge)
        if self.kind != "attention":
            reduce = segment_mean if self.kind == "mean" else segment_sum
            return reduce(torch.relu(heard), receiver, len(h))
        split = (len(heard), self.heads, -1)
        scores = (nn.functional.leaky_relu(heard, _SLOPE).view(split) * self.score).sum(-1)
        weights = segment_softmax(scores, receiver, len(h))
        # The edge is part of the value too, unlike in GATv2: two operands may come from one node by different tensors.
        value = (sent + self.along(edge)).view(split)
        return segment_sum((weights.unsqueeze(-1) * value).flatten(1), receiver, len(h))


class Layer(nn.Module):
    """One round of messages, both ways."""

    def __init__(self, hidden: int, kind: str, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.down = Messages(hidden, kind, heads)
        self.up = Messages(hidden, kind, heads)
        self.update = nn.Sequential(nn.Linear(3 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden))

    def forward(self, h: Tensor, batch: GraphBatch) -> Tensor:
        known = self.norm(h)
        below = self.down(known, batch.source, batch.target, batch.edge)
        above = self.up(known, batch.target, batch.source, batch.edge)
        return h + self.update(torch.cat((known, below, above), dim=1))


class GraphEncoder(nn.Module):
    """``forward(batch) -> (nodes [n, hidden], graphs [count, hidden])``.

    ``ops``: operators with an embedding of their own, beside the unknown. ``hidden`` is divisible by ``heads``.
    """

    def __init__(self, ops: int, hidden: int = 64, layers: int = 3, heads: int = 4, message: str = "attention") -> None:
        super().__init__()
        if message not in MESSAGES or hidden % heads or layers < 1:
            raise UsageError(
                f"The encoder was asked for {layers} layers of {hidden} with {heads} heads and message {message!r}; "
                f"expected a layer or more, a width divisible by the heads, and one of {', '.join(MESSAGES)}."
            )
        self.op = nn.Embedding(1 + ops, hidden)
        self.dtype = nn.Embedding(_DTYPES, hidden)
        self.feature = nn.Linear(len(NODE_COLUMNS), hidden)
        self.layers = nn.ModuleList(Layer(hidden, message, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.pool = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU())

    def forward(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        dtype = batch.dtype.clamp(0, _DTYPES - 1)
        h = self.op(batch.op) + self.dtype(dtype) + self.feature(batch.node)
        for layer in self.layers:
            h = layer(h, batch)
        h = self.norm(h)
        pooled = torch.cat((segment_mean(h, batch.owner, batch.count), segment_max(h, batch.owner, batch.count)), dim=1)
        return h, self.pool(pooled)
