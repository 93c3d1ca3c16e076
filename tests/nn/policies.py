"""Shared by the tests of learned parts: observations of tiny problems, and policies over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from worlds import tiny_episode

from rlflow import nn
from rlflow.nn.observation import Observation
from rlflow.nn.policy_config import PolicyConfig
from rlflow.nn.token_vocabulary import TokenVocabulary

if nn.available() is None:
    import torch

    from rlflow.nn.batch import Batch
    from rlflow.nn.policy import Policy, make_policy

    torch.set_num_threads(1)

needs_torch = pytest.mark.skipif(nn.available() is not None, reason=str(nn.available()))
SMALL = {"hidden": 16, "layers": 2, "heads": 2, "rule_size": 4}


def observations(names: tuple[str, ...] = ("exclusive", "valley", "plateau"), children: bool = False) -> list[Any]:
    """The starting states of tiny problems, translated for ``small_policy``, one after a step."""
    vocabulary = small_vocabulary()
    found = []
    for name in names:
        episode = tiny_episode(name, children=children)
        rows = vocabulary.rule_rows(episode.walks.problem.rule_names)
        found.append(vocabulary.translate(episode.observe(), rows))
        episode.step(1)
        found.append(vocabulary.translate(episode.observe(), rows))
    return found


def small_vocabulary() -> TokenVocabulary:
    return TokenVocabulary.of(["merge-products", "relu-of-concat", "cancel-transposes", "relu-below-transpose"])


def small_policy(seed: int = 0, **config: Any) -> Policy:
    return make_policy(PolicyConfig(**{**SMALL, **config}), small_vocabulary(), seed)


def batch_of(seen: list[Observation]) -> Batch:
    return Batch.of(seen, small_vocabulary().op_rows)


def relabelled(seen: Observation, order: np.ndarray) -> Observation:
    """The same state with its nodes in another order."""
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    graph = seen.graph
    edges = np.random.default_rng(0).permutation(len(graph.source))
    graph = graph._replace(
        op=graph.op[order],
        dtype=graph.dtype[order],
        node=graph.node[order],
        source=place[graph.source][edges],
        target=place[graph.target][edges],
        edge=graph.edge[edges],
    )
    return seen._replace(graph=graph, touched=place[seen.touched])


def shuffled(seen: Observation, order: np.ndarray) -> Observation:
    """The same state with its candidates in another order."""
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    by = place[seen.touched_by]
    sort = np.argsort(by, kind="stable")
    children = tuple(seen.children[k] for k in order) if seen.children else ()
    return seen._replace(
        rule=seen.rule[order],
        delta=seen.delta[order],
        touched=seen.touched[sort],
        touched_by=by[sort],
        children=children,
    )
