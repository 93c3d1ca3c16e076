"""The modern form: a latent model over *node* embeddings, in which a candidate is a local change.

The graph is encoded once. A candidate is its rule, the nodes that it touches and what it changes; taking it in the
latent model changes the embeddings of those nodes and no others, and a candidate that touches none of them survives.
So several steps can be looked ahead without the engine, which then opens only the few best (after the use of learned
dynamics as rankers; see ``docs/worldmodel.md``).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rlflow.agents.rlflow.config import WorldConfig
from rlflow.agents.rlflow.latent import unsquash
from rlflow.nn.batch import Batch
from rlflow.nn.encoder import GraphEncoder
from rlflow.nn.observation import DELTA_COLUMNS, GLOBAL_COLUMNS
from rlflow.nn.policy import embedded_rules
from rlflow.nn.segment import segment_max, segment_mean
from rlflow.nn.token_vocabulary import TokenVocabulary

_RULE, _HEADS = 16, 4
#: Columns of what a candidate changes that are facts of the graph, not of the walk that led to it.
OWN_DELTA = [i for i, name in enumerate(DELTA_COLUMNS) if name not in ("gain over the best", "was visited")]
_OWN_GLOBALS = [GLOBAL_COLUMNS.index(name) for name in ("log cost", "log nodes", "log candidates")]
_GAIN = DELTA_COLUMNS.index("gain")


@dataclass
class Scores:
    """``change`` [k], ``future`` [k]: of the candidates, stop included: the step's own log gain (its price, corrected)
    and what can be had after it, discounted; ``value`` [s]: what can be had from the states. All squashed.
    ``candidates`` [k, hidden].
    """

    change: Tensor
    future: Tensor
    value: Tensor
    candidates: Tensor

    def worth(self, batch: Batch) -> Tensor:
        """[k], log gains: the candidate's price, which the engine gave with the state, and the predicted rest."""
        return unsquash(batch.delta[:, _GAIN]) + unsquash(self.future).clamp(min=0)


class GraphWorld(nn.Module):
    """``encode`` a batch, ``score`` its candidates, ``take`` candidates in the latent graphs, ``survive``."""

    def __init__(self, config: WorldConfig, vocabulary: TokenVocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        hidden = config.encoder_hidden
        self.graph = GraphEncoder(len(vocabulary.ops), hidden, config.encoder_layers, _HEADS, config.message)
        self.state = nn.Sequential(nn.Linear(2 * hidden + len(_OWN_GLOBALS), hidden), nn.ReLU())
        self.rule = nn.Embedding(2 + len(vocabulary.rules), _RULE)
        known = 3 * hidden + _RULE + len(OWN_DELTA)
        self.candidate = nn.Sequential(
            nn.Linear(known, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, hidden), nn.ReLU()
        )
        self.change = nn.Linear(hidden, 1)
        moved, rest = nn.Linear(hidden, hidden), nn.Linear(hidden, 1)
        self.future = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), rest)
        self.value = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.move = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), moved)
        self.meets = nn.Sequential(nn.Linear(2 * hidden + 1, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        with torch.no_grad():  # begin with: a candidate is worth its price, and little changes
            for last in (moved, rest, self.change):
                last.weight.mul_(0.05)
                last.bias.zero_()

    def encode(self, batch: Batch) -> Tensor:
        """Node embeddings [n, hidden]."""
        return self.graph(batch.graph)[0]

    def pooled(self, nodes: Tensor, batch: Batch) -> Tensor:
        """States [s, hidden]."""
        owner, count = batch.graph.owner, batch.count
        both = (segment_mean(nodes, owner, count), segment_max(nodes, owner, count), batch.globals[:, _OWN_GLOBALS])
        return self.state(torch.cat(both, dim=1))

    def score(self, nodes: Tensor, batch: Batch) -> Scores:
        """Everything that is predicted of states and their candidates, stop included."""
        states = self.pooled(nodes, batch)
        touched, count = nodes[batch.touched], len(batch.rule)
        parts = (
            states[batch.owner],
            segment_mean(touched, batch.touched_by, count),
            segment_max(touched, batch.touched_by, count),
            embedded_rules(self.rule, batch.rule),
            batch.delta[:, OWN_DELTA],
        )
        found = self.candidate(torch.cat(parts, dim=1))
        change = batch.delta[:, _GAIN] + self.change(found).squeeze(1)
        return Scores(change, self.future(found).squeeze(1), self.value(states).squeeze(1), found)

    def take(self, nodes: Tensor, batch: Batch, scores: Scores, chosen: Tensor) -> Tensor:
        """Node embeddings after candidate ``chosen`` [s] (its number in the batch) of each state: those that it touches
        change.
        """
        taken = torch.zeros(len(batch.rule), dtype=torch.bool)
        taken[chosen] = True
        kept = taken[batch.touched_by]
        at, by = batch.touched[kept], batch.touched_by[kept]
        return nodes.index_add(0, at, self.move(torch.cat((nodes[at], scores.candidates[by]), dim=1)))

    def survive(self, scores: Scores, one: Tensor, other: Tensor, overlap: Tensor) -> Tensor:
        """[p]: logits that candidate ``other`` is still there after ``one``; ``overlap`` [p]: the share of its nodes
        that ``one`` touches too.
        """
        both = (scores.candidates[one], scores.candidates[other], overlap.unsqueeze(1))
        return self.meets(torch.cat(both, dim=1)).squeeze(1)


def make_graph_world(config: WorldConfig, vocabulary: TokenVocabulary, seed: int) -> GraphWorld:
    """A model with fresh weights that depend on the seed alone; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GraphWorld(config, vocabulary).eval()
