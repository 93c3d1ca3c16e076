"""The network: what may not matter does not, what must learn does."""

from __future__ import annotations

import numpy as np
import pytest
from policies import (
    batch_of,
    needs_torch,
    observations,
    relabelled,
    shuffled,
    small_policy,
    small_vocabulary,
)

from rlflow.errors import UsageError

pytestmark = needs_torch
torch = pytest.importorskip("torch", reason="torch is not installed; pip install 'rlflow[rl]'")

VARIANTS = [
    {},
    {"message": "mean"},
    {"message": "sum"},
    {"prior": 2.0},
    {"rule_embedding": False},
    {"encoder": "meta-graph"},
]
variants = pytest.mark.parametrize(
    "config", VARIANTS, ids=lambda config: "-".join(map(str, config.values())) or "paper"
)


def seen_for(config: dict) -> list:
    return observations(children=config.get("encoder") == "meta-graph")


def scores(policy, seen: list) -> tuple[np.ndarray, np.ndarray]:
    with torch.no_grad():
        choice, values = policy(batch_of(seen))
    return choice.log_probs.numpy(), values.numpy()


@variants
def test_every_parameter_receives_gradient(config: dict) -> None:
    policy = small_policy(**config)
    choice, values = policy(batch_of(seen_for(config)))
    action = torch.tensor(choice.mode())
    (choice.log_prob(action).sum() + choice.entropy().sum() + values.square().sum()).backward()
    silent = [name for name, p in policy.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert not silent


@variants
def test_shuffling_candidates_shuffles_the_scores(config: dict) -> None:
    policy, rng = small_policy(**config), np.random.default_rng(0)
    for seen in seen_for(config):
        order = rng.permutation(seen.candidates)
        (before, value), (after, same) = scores(policy, [seen]), scores(policy, [shuffled(seen, order)])
        np.testing.assert_allclose(after, before[order], atol=1e-5)
        np.testing.assert_allclose(same, value, atol=1e-5)


@variants
def test_relabelling_nodes_changes_nothing(config: dict) -> None:
    policy, rng = small_policy(**config), np.random.default_rng(0)
    for seen in seen_for(config):
        other = relabelled(seen, rng.permutation(len(seen.graph.op)))
        for one, two in zip(scores(policy, [seen]), scores(policy, [other]), strict=True):
            np.testing.assert_allclose(one, two, atol=1e-5)


@variants
def test_states_in_a_batch_do_not_hear_each_other(config: dict) -> None:
    policy, seen = small_policy(**config), seen_for(config)
    together, values = scores(policy, seen)
    alone = [scores(policy, [one]) for one in seen]
    np.testing.assert_allclose(together, np.concatenate([logs for logs, _ in alone]), atol=1e-5)
    np.testing.assert_allclose(values, np.concatenate([value for _, value in alone]), atol=1e-5)


def test_the_whole_graph_is_heard_both_ways() -> None:
    """After as many layers as the way is long, a change at one end shows at the other."""
    from rlflow.graph import Graph
    from rlflow.graph.features import GraphFeatures
    from rlflow.nn.batch import GraphBatch
    from rlflow.nn.encoder import GraphEncoder

    graph = GraphFeatures.of(Graph.parse("x: f32[4] = input\na = Relu(x)\nb = Tanh(a)\nc = Exp(b)\nreturn c"))
    torch.manual_seed(0)
    encoder = GraphEncoder(len(small_vocabulary().ops), 16, 3, 2)
    for end, far in ((0, 3), (3, 0)):
        node = graph.node.copy()
        node[end] += 1
        before, after = (
            encoder(GraphBatch.of([graph._replace(node=features)], small_vocabulary().op_rows))[0]
            for features in (graph.node, node)
        )
        assert (before[far] - after[far]).abs().max() > 1e-6


def test_a_prior_prefers_the_largest_gain_before_any_training() -> None:
    from rlflow.nn.observation import DELTA_COLUMNS

    seen = observations(("exclusive",))[0]
    logs, _ = scores(small_policy(prior=50.0), [seen])
    assert logs.argmax() == seen.delta[:, DELTA_COLUMNS.index("gain")].argmax()
    even, _ = scores(small_policy(), [seen])
    assert even.max() - even.min() < 0.1


def test_an_unknown_rule_is_the_average_rule() -> None:
    vocabulary = small_vocabulary()
    assert vocabulary.rule_rows(["no-such", "merge-products"]).tolist() == [0, 1, 2]
    policy, seen = small_policy(), observations(("exclusive",))[0]
    unknown = seen._replace(rule=np.where(seen.rule > 1, 1, seen.rule).astype(np.int32))
    assert np.isfinite(scores(policy, [unknown])[0]).all()
    with torch.no_grad():
        policy.rule.weight[1:] = policy.rule.weight[2]
    for one, two in zip(scores(policy, [seen]), scores(policy, [unknown]), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = small_policy(3).state_dict()
    torch.rand(7)
    second, other = small_policy(3).state_dict(), small_policy(4).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize(
    ("config", "words"),
    [({"message": "gossip"}, "gossip"), ({"heads": 3}, "divisible"), ({"encoder": "both"}, "no encoder 'both'")],
)
def test_what_cannot_be_built_is_a_sentence(config: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        small_policy(**config)


def test_the_meta_graph_asks_for_the_candidates_graphs() -> None:
    with pytest.raises(UsageError, match="every candidate's graph"):
        small_policy(encoder="meta-graph")(batch_of(observations()))
