"""GO's policy network: a graph encoder, attention over segments, and one attention step a task.

Shapes: n nodes in a topological order, b decisions of the same graph side by side, d the width, a = 8 choices.
What is published of the method, and what is ours, is in docs/go.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from rlflow.agents.go.config import CHOICES, TASKS, GoConfig
from rlflow.nn.segment import segment_max, segment_mean, segment_sum
from rlflow.placement.decisions import FEATURES, GraphView

#: Segments whose attention is computed side by side; bounds the memory that a large graph takes.
_SEGMENTS_AT_ONCE = 32
#: Logits that a unit of what a task keeps is worth: so much faster than other weights it is learnt.
_KEPT = 10.0
#: What stands for a node that nothing was decided about yet.
UNDECIDED = -1


class GraphTensors(NamedTuple):
    """A :class:`GraphView` as tensors: ``features`` [n, F]; ``source``, ``target``, ``handed`` [E]; ``seconds`` [n]."""

    features: Tensor
    source: Tensor
    target: Tensor
    handed: Tensor
    seconds: Tensor

    @classmethod
    def of(cls, view: GraphView) -> GraphTensors:
        """Copies."""
        arrays = (view.features, view.source, view.target, view.handed, view.seconds)
        return cls(*(torch.from_numpy(array.copy()) for array in arrays))


class Encoded(NamedTuple):
    """``nodes`` [n, d], and ``context`` [d], the graph as a whole, which gates are conditioned on."""

    nodes: Tensor
    context: Tensor


class MaxPoolEncoder(nn.Module):
    """GraphSAGE with max-pooling (Hamilton et al. 2017): of each node's makers, and of its readers, the largest of what
    they say, element by element. Trained with the policy, by its reward.
    """

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.says = nn.ModuleList(nn.Linear(hidden, 2 * hidden) for _ in range(layers))
        self.joins = nn.ModuleList(nn.Linear(3 * hidden, hidden) for _ in range(layers))

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """[n, d] to [n, d]."""
        for say, join in zip(self.says, self.joins, strict=True):
            down, up = say(nodes).relu().chunk(2, dim=-1)
            makers = segment_max(down[source], target, len(nodes))
            readers = segment_max(up[target], source, len(nodes))
            nodes = nodes + join(torch.cat([nodes, makers, readers], dim=-1)).relu()
        return nodes


class Gate(nn.Module):
    """Multiplies a layer's input, element by element, by numbers in (0, 2) that the graph as a whole conditions."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.reads = nn.Linear(hidden, hidden)

    def forward(self, nodes: Tensor, context: Tensor) -> Tensor:
        """``nodes`` [..., d], ``context`` [d]."""
        return nodes * (2.0 * self.reads(context).sigmoid())


class SegmentAttention(nn.Module):
    """A transformer's layer over segments of consecutive nodes, without positions: a node attends to its own segment
    and to the one before, which is cached as this layer read it and gets no gradient (Dai et al. 2019).
    """

    def __init__(self, hidden: int, heads: int, segment: int, attention: bool = True) -> None:
        super().__init__()
        self.heads, self.segment, self.attends = heads, segment, attention
        self.before = nn.LayerNorm(hidden)
        if attention:
            self.query = nn.Linear(hidden, hidden)
            self.pairs = nn.Linear(hidden, 2 * hidden)
            self.out = nn.Linear(hidden, hidden)
        self.between = nn.LayerNorm(hidden)
        self.wide = nn.Linear(hidden, 2 * hidden)
        self.narrow = nn.Linear(2 * hidden, hidden)

    def one(self, nodes: Tensor, cached: Tensor | None, seen: Tensor | None = None) -> Tensor:
        """One segment: ``nodes`` [m, l, d], ``cached`` [m, k, d] what this method was given for the segments before.
        ``seen`` bool [m, k + l]: which may be attended to (default: all).
        """
        if self.attends:
            normal = self.before(nodes)
            known = normal if cached is None else torch.cat([self.before(cached.detach()), normal], dim=1)
            keys, values = self.pairs(known).chunk(2, dim=-1)
            mask = None if seen is None else seen[:, None, None, :]
            found = functional.scaled_dot_product_attention(
                self._split(self.query(normal)), self._split(keys), self._split(values), attn_mask=mask
            )
            nodes = nodes + self.out(found.transpose(1, 2).flatten(2))
        return nodes + self.narrow(functional.gelu(self.wide(self.between(nodes))))

    def _split(self, values: Tensor) -> Tensor:
        return values.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, nodes: Tensor) -> Tensor:
        """All segments of [b, n, d], as :meth:`one` makes them one after the other. They are equal, but for the last,
        which is filled up.
        """
        count, n, width = nodes.shape
        segments = -(-n // self.segment)
        if segments == 1 or not self.attends:
            return self.one(nodes, None)
        length = -(-n // segments)
        filled = functional.pad(nodes, (0, 0, 0, segments * length - n)).view(count, segments, length, width)
        there = (torch.arange(segments * length, device=nodes.device) < n).view(segments, length)
        cached = torch.cat([torch.zeros_like(filled[:, :1]), filled[:, :-1]], dim=1)
        known = torch.cat([torch.zeros_like(there[:1]), there[:-1]], dim=0)
        seen = torch.cat([known, there], dim=1)
        step = max(1, _SEGMENTS_AT_ONCE // count)
        parts = []
        for begin in range(0, segments, step):
            some = slice(begin, begin + step)
            size = filled[:, some].shape[1]
            part = self.one(
                filled[:, some].flatten(0, 1), cached[:, some].flatten(0, 1), seen[some].repeat(count, 1)
            )  # fmt: skip
            parts.append(part.view(count, size, length, width))
        return torch.cat(parts, dim=1).flatten(1, 2)[:, :n]


class GoPolicy(nn.Module):
    """Logits for all nodes and tasks, given what was decided an iteration before."""

    def __init__(self, config: GoConfig) -> None:
        super().__init__()
        d = config.hidden
        self.config = config
        self.reads = nn.Linear(len(FEATURES), d)
        self.graph = MaxPoolEncoder(d, config.graph_layers) if config.gnn else None
        layer = (d, config.heads, config.segment, config.attention)
        self.trunk = nn.ModuleList(SegmentAttention(*layer) for _ in range(config.layers))
        self.gates = nn.ModuleList(Gate(d) for _ in range(config.layers + 1)) if config.gate else None
        self.step = SegmentAttention(*layer)  # one, whatever the task
        self.tasks = nn.Embedding(len(TASKS), d)
        self.hears = nn.ModuleList(nn.Linear(5 * CHOICES, d) for _ in TASKS)  # what a choice means is a task's own
        self.about = nn.Linear(CHOICES, d)
        self.passed = nn.Linear(d + CHOICES, d)
        self.normal = nn.LayerNorm(d)
        heads = [nn.Linear(d, CHOICES) for _ in TASKS]
        for head in heads:
            nn.init.normal_(head.weight, std=0.01)
        self.heads = nn.ModuleList(heads)
        self.keeps = nn.Parameter(torch.zeros(len(TASKS)))  # how much each task holds on to what was decided before

    def encode(self, graph: GraphTensors) -> Encoded:
        """What does not depend on decisions, and is computed once a graph."""
        nodes = self.reads(graph.features)
        if self.graph is not None:
            nodes = self.graph(nodes, graph.source, graph.target)
        context = nodes.mean(dim=0)
        found = nodes[None]
        for number, layer in enumerate(self.trunk):
            found = layer(self._gated(number, found, context))
        return Encoded(found[0], context)

    def _gated(self, number: int, nodes: Tensor, context: Tensor) -> Tensor:
        return nodes if self.gates is None else self.gates[number](nodes, context)

    def forward(
        self, graph: GraphTensors, seen: Encoded, before: Sequence[Tensor], about: Sequence[Tensor]
    ) -> list[Tensor]:
        """Logits [b, n, a] of the tasks, as many as ``before`` has. ``before``: of each task what was decided an
        iteration before, int64 [b, n], ``UNDECIDED`` where nothing was. ``about`` [a]: of each task the share of each
        choice in all (of devices: by speed), 0 for choices that there are not, which get no chance.
        """
        found: list[Tensor] = []
        said: Tensor | None = None
        for number, (decided, shares) in enumerate(zip(before, about, strict=True)):
            heard = told(graph, decided)
            nodes = seen.nodes + self.tasks.weight[number] + self.about(shares) + self.hears[number](heard)
            if said is not None and self.config.together:
                nodes = nodes + self.passed(said)
            nodes = self.step(self._gated(len(self.trunk), nodes, seen.context))
            logits = self.heads[number](self.normal(nodes)) + _KEPT * self.keeps[number] * heard[..., :CHOICES]
            logits = logits.masked_fill(shares <= 0, -torch.inf)
            found.append(logits)
            said = torch.cat([nodes, logits.softmax(dim=-1)], dim=-1)
        return found


def told(graph: GraphTensors, decided: Tensor) -> Tensor:
    """What each node is told of decisions int64 [b, n], [b, n, 5a]: its own, the mean of its makers' and of its
    readers'; how much the node would have to hand over to and from those of each choice, if it were not among them
    (log(1 + units of a mean node's time)); and the share of the work that each choice has.
    """
    own = functional.one_hot(decided.clamp(min=0), CHOICES) * (decided >= 0)[..., None]
    own = own.to(graph.seconds.dtype)
    by_node = own.transpose(0, 1)  # [n, b, a]
    makers = segment_mean(by_node[graph.source], graph.target, by_node.shape[0]).transpose(0, 1)
    readers = segment_mean(by_node[graph.target], graph.source, by_node.shape[0]).transpose(0, 1)
    weight = graph.handed[:, None, None]
    near = segment_sum(by_node[graph.source] * weight, graph.target, by_node.shape[0])
    near = (near + segment_sum(by_node[graph.target] * weight, graph.source, by_node.shape[0])).log1p().transpose(0, 1)
    load = torch.einsum("bna,n->ba", own, graph.seconds)[:, None].expand_as(own)
    return torch.cat([own, makers, readers, near, load], dim=-1)


def make_go(config: GoConfig, seed: int) -> GoPolicy:
    """A fresh policy; the same seed gives the same weights, and torch's own generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GoPolicy(config).eval()
