"""The network in the core: the same scores as a plain numpy one, and as torch's where that is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import SMALL, needs_torch, observations, small_vocabulary
from policy_oracle import Oracle, random_weights

from rlflow.errors import UsageError
from rlflow.graph.features import EDGE_COLUMNS, NODE_COLUMNS, GraphFeatures
from rlflow.nn.native_policy import NativePolicy
from rlflow.nn.observation import DELTA_COLUMNS, GLOBAL_COLUMNS, Observation
from rlflow.nn.policy_config import PolicyConfig
from rlflow.ops import op_names

FORMS: list[dict[str, Any]] = [
    {},
    {"hidden": 48, "layers": 2, "heads": 4, "rule_size": 16, "prior": 2.0},  # the one that ships
    {"hidden": 6, "layers": 1, "heads": 3},  # narrower than a vector
    {"hidden": 20, "heads": 1, "message": "mean"},
    {"message": "sum", "rule_embedding": False},
    {"encoder": "meta-graph", "prior": 1.0},
    {"encoder": "meta-graph", "message": "mean", "rule_embedding": False},
]
forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form.values())) or "paper")


def config_of(form: dict[str, Any]) -> PolicyConfig:
    return PolicyConfig(**{**SMALL, **form})


def drawn_graph(rng: np.random.Generator, nodes: int, edges: int) -> GraphFeatures:
    """Any numbers: nodes that nothing reads, edges that are there twice, an edge to itself."""
    edges = edges if nodes else 0

    def integers(end: int, count: int) -> np.ndarray:
        return rng.integers(0, max(end, 1), count).astype(np.int32)

    def numbers(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    return GraphFeatures(
        np.arange(nodes, dtype=np.int32), integers(len(op_names()), nodes), integers(40, nodes) - 2,
        numbers(nodes, len(NODE_COLUMNS)), integers(nodes, edges), integers(nodes, edges),
        numbers(edges, len(EDGE_COLUMNS)),
    )  # fmt: skip


def drawn_state(seed: int, nodes: int, edges: int, candidates: int, children: bool) -> Observation:
    """Embedding rows for rules, the unknown one and the one to stop among them; candidates that touch nothing."""
    rng = np.random.default_rng(seed)
    touched = rng.integers(0, max(nodes, 1), 2 * candidates if nodes else 0).astype(np.int32)
    graphs = [drawn_graph(rng, int(rng.integers(1, nodes + 2)), edges) for _ in range(candidates if children else 0)]
    return Observation(
        drawn_graph(rng, nodes, edges),
        rng.standard_normal(len(GLOBAL_COLUMNS)).astype(np.float32),
        rng.integers(0, 2 + len(small_vocabulary().rules), candidates).astype(np.int32),
        rng.standard_normal((candidates, len(DELTA_COLUMNS))).astype(np.float32),
        touched,
        np.sort(rng.integers(0, candidates, len(touched))).astype(np.int32),
        tuple(graphs),
    )


def compare(config: PolicyConfig, weights: dict[str, np.ndarray], seen: Observation) -> None:
    native = NativePolicy(config, small_vocabulary(), weights)
    scores, value = native.scores(seen)
    expected, worth = Oracle(config, small_vocabulary(), weights).scores(seen)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    assert value == pytest.approx(worth, rel=1e-5, abs=1e-5)
    again, same = native.scores(seen, native.encode(seen.graph))
    assert np.array_equal(again, scores)
    assert same == value


@forms
def test_scores_of_states_are_those_of_plain_numpy(form: dict[str, Any]) -> None:
    config = config_of(form)
    for number, seen in enumerate(observations(children=config.needs_children)):
        compare(config, random_weights(config, small_vocabulary(), number), seen)


@settings(max_examples=60, deadline=None)
@given(
    form=st.sampled_from(FORMS),
    seed=st.integers(0, 1 << 30),
    nodes=st.integers(0, 30),
    edges=st.integers(0, 60),
    candidates=st.integers(1, 9),
)
def test_scores_of_any_arrays_are_those_of_plain_numpy(
    form: dict[str, Any], seed: int, nodes: int, edges: int, candidates: int
) -> None:
    config = config_of(form)
    seen = drawn_state(seed, nodes, edges, candidates, config.needs_children)
    compare(config, random_weights(config, small_vocabulary(), seed), seen)


@needs_torch
@forms
def test_scores_are_torchs(form: dict[str, Any]) -> None:
    import torch
    from policies import batch_of, small_policy

    from rlflow.agents.torch_state import weights_of

    policy, config = small_policy(**form), config_of(form)
    weights = random_weights(config, small_vocabulary(), 5)
    policy.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    native = NativePolicy(config, small_vocabulary(), weights_of(policy))
    for seen in observations(children=config.needs_children):
        with torch.no_grad():
            choice, values = policy(batch_of([seen]))
        scores, value = native.scores(seen)
        np.testing.assert_allclose(scores, choice.logits.numpy(), rtol=1e-5, atol=1e-5)
        assert value == pytest.approx(float(values[0]), rel=1e-5, abs=1e-5)


@needs_torch
def test_the_shipped_agent_scores_a_whole_model_as_torch_does() -> None:
    import torch

    from rlflow.agents.xrlflow.trained import SHIPPED, PolicyCheckpoint
    from rlflow.env import Episode, Improvement, ProblemSpec, Walks
    from rlflow.nn.batch import Batch

    checkpoint = PolicyCheckpoint.load(SHIPPED)
    native, policy, words = checkpoint.native(), checkpoint.policy(), checkpoint.vocabulary
    problem = ProblemSpec.of("bert-base?layers=2&seq=64").load().problem()
    episode = Episode(Walks(problem), Improvement(), 20)
    for _ in range(3):
        seen = words.translate(episode.observe(), words.rule_rows(problem.rule_names))
        with torch.no_grad():
            choice, values = policy(Batch.of([seen], words.op_rows))
        scores, value = native.scores(seen)
        np.testing.assert_allclose(scores, choice.logits.numpy(), rtol=1e-5, atol=1e-5)
        assert value == pytest.approx(float(values[0]), abs=1e-5)
        episode.step(1 + int(np.argmin(episode.place.table.cost)))


def changed(weights: dict[str, np.ndarray], **arrays: Any) -> dict[str, np.ndarray]:
    return {name: array for name, array in {**weights, **arrays}.items() if array is not None}


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"score.weight": None}, "weight score.weight lacks"),
        ({"more": np.zeros(2, np.float32)}, "weight more is not asked for"),
        ({"prior": np.zeros(1, np.float32)}, "weight prior is not asked for"),
        ({"score.weight": np.zeros((16, 1), np.float32)}, r"has the shape \[16, 1\]; expected \[1, 16\]"),
    ],
)
def test_weights_that_do_not_fit_are_a_sentence(arrays: dict[str, Any], words: str) -> None:
    weights = random_weights(config_of({}), small_vocabulary(), 0)
    with pytest.raises(UsageError, match=words):
        NativePolicy(config_of({}), small_vocabulary(), changed(weights, **arrays))


@pytest.mark.parametrize("form", [{"message": "gossip"}, {"encoder": "both"}, {"heads": 3}, {"layers": 0}])
def test_a_network_that_cannot_be_is_a_sentence(form: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"gossip|both|divisible|layers"):
        NativePolicy(config_of(form), small_vocabulary(), {})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda seen: seen._replace(touched=seen.touched + 100), "touched holds"),
        (lambda seen: seen._replace(touched_by=seen.touched_by[::-1].copy()), "does not ascend"),
        (lambda seen: seen._replace(touched_by=seen.touched_by - 1), "touched_by holds -1"),
        (lambda seen: seen._replace(touched_by=seen.touched_by[1:]), "touched_by has"),
        (lambda seen: seen._replace(rule=seen.rule + 50), "rule holds"),
        (lambda seen: seen._replace(delta=seen.delta[1:]), "delta has"),
        (lambda seen: seen._replace(globals=seen.globals[1:]), "globals has 6 entries; expected 7"),
        (lambda seen: seen._replace(rule=seen.rule[:0], delta=seen.delta[:0]), "no candidate"),
        (lambda seen: seen._replace(graph=seen.graph._replace(source=seen.graph.source + 99)), "source holds"),
        (lambda seen: seen._replace(graph=seen.graph._replace(target=seen.graph.target - 99)), "target holds"),
        (lambda seen: seen._replace(graph=seen.graph._replace(target=seen.graph.target[1:])), "target has"),
        (lambda seen: seen._replace(graph=seen.graph._replace(node=seen.graph.node[1:])), "node has"),
        (lambda seen: seen._replace(graph=seen.graph._replace(edge=seen.graph.edge[1:])), "edge has"),
        (lambda seen: seen._replace(graph=seen.graph._replace(dtype=seen.graph.dtype[1:])), "dtype has"),
    ],
)
def test_arrays_that_do_not_fit_are_a_sentence(change: Any, words: str) -> None:
    config = config_of({})
    native = NativePolicy(config, small_vocabulary(), random_weights(config, small_vocabulary(), 0))
    seen = drawn_state(0, 8, 12, 5, False)
    seen = seen._replace(touched=np.arange(5, dtype=np.int32), touched_by=np.arange(5, dtype=np.int32))
    native.scores(seen)  # the one that is sound
    with pytest.raises(UsageError, match=words):
        native.scores(change(seen))


def test_the_candidates_graphs_are_asked_for_where_they_are_read() -> None:
    config = config_of({"encoder": "meta-graph"})
    native = NativePolicy(config, small_vocabulary(), random_weights(config, small_vocabulary(), 0))
    with pytest.raises(UsageError, match="every candidate's graph"):
        native.scores(drawn_state(0, 8, 12, 5, False))
    seen = drawn_state(0, 8, 12, 5, True)
    alone = NativePolicy(config_of({}), small_vocabulary(), random_weights(config_of({}), small_vocabulary(), 0))
    with pytest.raises(UsageError, match="nodes' code"):
        alone.scores(seen, alone.encode(seen.graph, whole=False))
