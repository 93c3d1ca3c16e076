"""Scores of candidates and the value of a state, from one graph and any number of candidates."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rlflow.errors import UsageError
from rlflow.nn.batch import Batch
from rlflow.nn.encoder import GraphEncoder
from rlflow.nn.observation import DELTA_COLUMNS, GLOBAL_COLUMNS
from rlflow.nn.policy_config import ENCODERS, PolicyConfig
from rlflow.nn.ragged import RaggedCategorical
from rlflow.nn.segment import segment_max, segment_mean
from rlflow.nn.token_vocabulary import UNKNOWN_RULE, TokenVocabulary

_GAIN, _IS_STOP = DELTA_COLUMNS.index("part of the largest gain"), DELTA_COLUMNS.index("is stop")


class Policy(nn.Module):
    """``forward(batch) -> (distribution over candidates, values [states])``."""

    def __init__(self, config: PolicyConfig, vocabulary: TokenVocabulary) -> None:
        super().__init__()
        if config.encoder not in ENCODERS:
            raise UsageError(f"There is no encoder {config.encoder!r}; there are {' and '.join(ENCODERS)}.")
        self.config, self.vocabulary = config, vocabulary
        hidden = config.hidden
        self.graph = GraphEncoder(len(vocabulary.ops), hidden, config.layers, config.heads, config.message)
        self.state = nn.Sequential(nn.Linear(hidden + len(GLOBAL_COLUMNS), hidden), nn.ReLU())
        self.rule = nn.Embedding(2 + len(vocabulary.rules), config.rule_size) if config.rule_embedding else None
        known = hidden + 1 if config.needs_children else 2 * hidden + len(DELTA_COLUMNS)
        self.candidate = nn.Sequential(
            nn.Linear(hidden + known + (config.rule_size if config.rule_embedding else 0), hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
        )
        self.score = nn.Linear(hidden, 1, bias=False)  # one for all candidates; a bias would cancel in the softmax
        self.prior = nn.Parameter(torch.tensor(config.prior)) if config.prior else None
        estimate = nn.Linear(hidden, 1)
        self.value = nn.Sequential(nn.Linear(3 * hidden, hidden), nn.ReLU(), estimate)
        with torch.no_grad():
            self.score.weight.mul_(0.01)  # begin near the uniform choice (or the prior)
            estimate.weight.mul_(0.1)

    def forward(self, batch: Batch) -> tuple[RaggedCategorical, Tensor]:
        nodes, graphs = self.graph(batch.graph)
        state = self.state(torch.cat((graphs, batch.globals), dim=1))
        parts = [state[batch.owner], *self._of_candidates(batch, nodes)]
        if self.rule is not None:
            parts.append(embedded_rules(self.rule, batch.rule))
        candidates = self.candidate(torch.cat(parts, dim=1))
        logits = self.score(candidates).squeeze(1)
        if self.prior is not None:
            logits = logits + self.prior * batch.delta[:, _GAIN]
        pooled = [reduce(candidates, batch.owner, batch.count) for reduce in (segment_mean, segment_max)]
        values = self.value(torch.cat((state, *pooled), dim=1)).squeeze(1)
        return RaggedCategorical(logits, batch.owner, batch.count), values

    def _of_candidates(self, batch: Batch, nodes: Tensor) -> list[Tensor]:
        if self.config.needs_children:
            if batch.children is None:
                raise UsageError("The encoder 'meta-graph' needs observations with every candidate's graph.")
            return [self.graph(batch.children)[1], batch.delta[:, _IS_STOP:]]
        touched, count = nodes[batch.touched], len(batch.rule)
        mean, highest = (reduce(touched, batch.touched_by, count) for reduce in (segment_mean, segment_max))
        return [mean, highest, batch.delta]


def embedded_rules(table: nn.Embedding, rule: Tensor) -> Tensor:
    """Embeddings; a rule that is not in the vocabulary is the average of those that are."""
    average = table.weight[UNKNOWN_RULE:].mean(0)
    return torch.where((rule == UNKNOWN_RULE).unsqueeze(1), average, table(rule))


def make_policy(config: PolicyConfig, vocabulary: TokenVocabulary, seed: int) -> Policy:
    """A policy with fresh weights that depend on the seed alone; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Policy(config, vocabulary)
