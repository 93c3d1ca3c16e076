"""GO: each layer, the ratios and baselines of its updates."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'rlflow[rl]'")


from rlflow.agents.go import imitating, surrogate  # noqa: E402
from rlflow.agents.go.config import CHOICES, TASKS, GoConfig  # noqa: E402
from rlflow.agents.go.deciding import best_of, fine_tuned  # noqa: E402
from rlflow.agents.go.imitating import demonstrated, imitate  # noqa: E402
from rlflow.agents.go.lessons import alike, drawn_lessons, lesson_of, renamed, rewards  # noqa: E402
from rlflow.agents.go.network import UNDECIDED, Gate, MaxPoolEncoder, SegmentAttention, make_go, told  # noqa: E402
from rlflow.placement import Devices, PlacementTask, Work  # noqa: E402
from rlflow.placement.decisions import GraphView  # noqa: E402
from rlflow.placement.rules_of_thumb import best_by_rule  # noqa: E402

SMALL = GoConfig(hidden=16, heads=2, layers=2, segment=8, samples=4, pool=1, smallest=20, largest=30, epochs=2)


def lesson(nodes: int = 20, config: GoConfig = SMALL):
    sized = dataclasses.replace(config, smallest=nodes, largest=nodes)
    return drawn_lessons(["inception"], sized, 0)[0]


# --- layers -----------------------------------------------------------------------------------------------------------


def test_max_pooling_by_hand() -> None:
    encoder = MaxPoolEncoder(2, 1)
    with torch.no_grad():
        encoder.says[0].weight.copy_(torch.cat([torch.eye(2), 10 * torch.eye(2)]))
        encoder.says[0].bias.zero_()
        encoder.joins[0].weight.copy_(torch.cat([torch.zeros(2, 2), torch.eye(2), torch.eye(2)], dim=1))
        encoder.joins[0].bias.zero_()
    nodes = torch.tensor([[1.0, -5.0], [3.0, 2.0], [0.0, 0.0]])
    found = encoder(nodes, torch.tensor([0, 1]), torch.tensor([2, 2]))
    # node 2 hears the larger of its makers; nodes 0 and 1 hear their reader, which says 0
    assert torch.equal(found, torch.tensor([[1.0, -5.0], [3.0, 2.0], [3.0, 2.0]]))
    back = encoder(nodes, torch.tensor([2]), torch.tensor([1]))
    assert torch.equal(back, torch.tensor([[1.0, -5.0], [3.0, 2.0], [30.0, 20.0]]))


def test_the_encoder_does_not_depend_on_the_numbering() -> None:
    torch.manual_seed(0)
    encoder, nodes = MaxPoolEncoder(8, 2), torch.randn(6, 8)
    source, target = torch.tensor([0, 0, 1, 3, 4]), torch.tensor([1, 2, 3, 5, 5])
    other = torch.randperm(6)
    place = torch.argsort(other)
    found = encoder(nodes[other], place[source], place[target])
    assert torch.allclose(found, encoder(nodes, source, target)[other], atol=1e-6)


@pytest.mark.parametrize("n", [5, 8, 9, 16, 27])
def test_all_segments_at_once_are_one_after_the_other_with_what_was_cached(n: int) -> None:
    torch.manual_seed(n)
    layer, nodes = SegmentAttention(16, 2, 8), torch.randn(3, n, 16)
    parts, cached = [], None
    length = -(-n // -(-n // 8))  # as many segments as 8 nodes each take, as equal as can be
    for begin in range(0, n, length):
        part = nodes[:, begin : begin + length]
        parts.append(layer.one(part, cached))
        cached = part
    assert torch.allclose(layer(nodes), torch.cat(parts, dim=1), atol=1e-5)


def test_many_segments_are_computed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer, nodes = SegmentAttention(16, 2, 4), torch.randn(2, 30, 16)
    whole = layer(nodes)
    monkeypatch.setattr("rlflow.agents.go.network._SEGMENTS_AT_ONCE", 3)
    assert torch.allclose(layer(nodes), whole, atol=1e-6)


def test_two_segments_with_the_cache_are_full_attention_for_the_second() -> None:
    torch.manual_seed(1)
    nodes = torch.randn(1, 16, 16)
    segmented = SegmentAttention(16, 2, 8)
    full = SegmentAttention(16, 2, 16)
    full.load_state_dict(segmented.state_dict())
    assert torch.allclose(segmented(nodes)[:, 8:], full(nodes)[:, 8:], atol=1e-5)
    assert not torch.allclose(segmented(nodes)[:, :8], full(nodes)[:, :8], atol=1e-3)


def test_the_cache_reaches_one_segment_back_and_gets_no_gradient() -> None:
    torch.manual_seed(2)
    layer, nodes = SegmentAttention(16, 2, 8), torch.randn(1, 24, 16, requires_grad=True)
    other = nodes.detach().clone()
    other[:, 0] = torch.randn(16)
    moved = (layer(other) - layer(nodes)).abs().amax(dim=(0, 2))
    assert (moved[:16] > 1e-7).all()
    assert (moved[16:] == 0).all()
    layer(nodes)[:, 8:16].sum().backward()
    assert nodes.grad is not None
    assert (nodes.grad[:, :8] == 0).all()
    assert (nodes.grad[:, 8:16] != 0).any()


def test_without_attention_a_node_hears_of_no_other() -> None:
    torch.manual_seed(3)
    layer, nodes = SegmentAttention(16, 2, 8, attention=False), torch.randn(1, 12, 16)
    other = nodes.clone()
    other[:, 3] = torch.randn(16)
    moved = (layer(other) - layer(nodes)).abs().amax(dim=(0, 2))
    assert moved.nonzero().flatten().tolist() == [3]


def test_the_gate_is_conditioned_by_the_graph() -> None:
    torch.manual_seed(4)
    gate, nodes = Gate(4), torch.randn(3, 4)
    one, two = gate(nodes, torch.ones(4)), gate(nodes, -torch.ones(4))
    assert not torch.allclose(one, two)
    factor = one / nodes
    assert torch.allclose(factor, factor[:1].expand(3, 4))
    assert ((factor > 0) & (factor < 2)).all()


def test_what_a_node_is_told_by_hand() -> None:
    view = lesson().graph._replace(
        source=torch.tensor([0, 1]), target=torch.tensor([2, 2]), seconds=torch.tensor([0.5, 0.25, 0.25]),
        handed=torch.tensor([2.0, 5.0]),
    )  # fmt: skip
    found = told(view, torch.tensor([[0, 1, UNDECIDED]]))[0].view(3, 5, CHOICES)
    own, makers, readers, near, load = found.unbind(dim=1)
    assert own[:, :2].tolist() == [[1, 0], [0, 1], [0, 0]]
    assert makers[:, :2].tolist() == [[0, 0], [0, 0], [0.5, 0.5]]
    assert readers.abs().sum() == 0
    assert near[2, :2].tolist() == pytest.approx([np.log(3.0), np.log(6.0)]) and near[:2].abs().sum() == 0
    assert load[:, :2].tolist() == [[0.5, 0.25]] * 3
    assert told(view, torch.tensor([[0, 1, 3]]))[0].view(3, 5, CHOICES)[0, 2, 3] == 1


# --- the whole --------------------------------------------------------------------------------------------------------


def logits_of(policy, one, decided=None):
    n = one.view.nodes
    before = [torch.full((2, n), UNDECIDED) for _ in one.tasks] if decided is None else decided
    return policy(one.graph, policy.encode(one.graph), before, one.about)


def test_shapes_and_devices_that_there_are_not() -> None:
    one = lesson()
    found = logits_of(make_go(SMALL, 0), one)
    assert [tuple(values.shape) for values in found] == [(2, one.view.nodes, CHOICES)] * 3
    assert found[0][..., 2:].isinf().all()  # two devices
    assert found[0][..., :2].isfinite().all()
    assert found[1].isfinite().all()


def test_every_weight_gets_a_gradient_and_every_part_matters() -> None:
    one, policy = lesson(30), make_go(SMALL, 0)
    decided = [torch.randint(0, 2, (2, one.view.nodes)) for _ in one.tasks]
    values = torch.cat([logits.masked_fill(logits.isinf(), 0) for logits in logits_of(policy, one, decided)])
    (values * torch.randn_like(values)).sum().backward()
    dead = [name for name, weight in policy.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert dead == []


@pytest.mark.parametrize("part", ["gnn", "attention", "gate"])
def test_a_part_that_is_left_out_is_not_there(part: str) -> None:
    one = lesson(30)
    policy = make_go(dataclasses.replace(SMALL, **{part: False}), 0)
    whole = make_go(SMALL, 0)
    assert sum(w.numel() for w in policy.parameters()) < sum(w.numel() for w in whole.parameters())
    assert [tuple(values.shape) for values in logits_of(policy, one)] == [(2, one.view.nodes, CHOICES)] * 3


def test_a_far_neighbour_is_heard_by_edges_alone() -> None:
    """Without attention and gate, a change reaches as many hops as the encoder has layers, and no node beyond."""
    config = dataclasses.replace(SMALL, attention=False, gate=False)
    one = lesson()
    chain = torch.arange(9)
    graph = one.graph._replace(
        features=torch.randn(10, one.graph.features.shape[1]),
        source=chain,
        target=chain + 1,
        seconds=torch.full((10,), 0.1),
    )
    for gnn, reached in ((True, [3, 4, 5, 6, 7]), (False, [5])):
        policy = make_go(dataclasses.replace(config, gnn=gnn), 1)
        other = graph._replace(features=graph.features.clone())
        other.features[5] += 3.0
        moved = (policy.encode(other).nodes - policy.encode(graph).nodes).abs().amax(dim=1)
        assert moved.nonzero().flatten().tolist() == reached


def test_an_iteration_hears_of_the_one_before_and_a_task_of_the_task_before() -> None:
    one, policy = lesson(), make_go(SMALL, 0)
    n = one.view.nodes
    none = [torch.full((1, n), UNDECIDED) for _ in TASKS]
    first = logits_of(policy, one, none)
    changed = [torch.zeros(1, n, dtype=torch.int64), none[1], none[2]]
    after = logits_of(policy, one, changed)
    assert not torch.allclose(first[0][..., :2], after[0][..., :2])
    assert not torch.allclose(first[1], after[1])
    later = [none[0], none[1], torch.zeros(1, n, dtype=torch.int64)]
    assert torch.equal(logits_of(policy, one, later)[1], first[1])
    apart = make_go(dataclasses.replace(SMALL, together=False), 0)
    assert torch.equal(logits_of(apart, one, none)[1], logits_of(apart, one, changed)[1])


def test_tasks_share_the_weights_of_their_step() -> None:
    one, policy = lesson(), make_go(SMALL, 0)
    with torch.no_grad():
        policy.tasks.weight.copy_(policy.tasks.weight[:1].expand_as(policy.tasks.weight))
        policy.passed.weight.zero_()
        policy.passed.bias.zero_()
        for of_tasks in (policy.hears, policy.heads):  # what a task's choices mean is its own
            for layer in of_tasks[1:]:
                layer.load_state_dict(of_tasks[0].state_dict())
    same = [one.about[1]] * 3
    none = [torch.full((1, one.view.nodes), UNDECIDED) for _ in TASKS]
    found = policy(one.graph, policy.encode(one.graph), none, same)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


# --- decisions and updates --------------------------------------------------------------------------------------------


def test_drawn_decisions_have_the_chances_that_are_written_down() -> None:
    one, policy = lesson(), make_go(SMALL, 0)
    drawn = surrogate.draw(policy, one, 4, np.random.default_rng(0))
    found, entropy = surrogate.log_probs(policy, one, drawn)
    for mine, theirs, decided in zip(found, drawn.log_probs, drawn.decided, strict=True):
        assert decided.shape == (SMALL.iterations, 4, one.view.nodes)
        assert torch.allclose(mine, theirs, atol=1e-5)
    assert 0 < float(entropy.detach()) <= np.log(CHOICES)
    again = surrogate.draw(policy, one, 4, np.random.default_rng(0))
    assert all(torch.equal(a, b) for a, b in zip(drawn.decided, again.decided, strict=True))
    likeliest = surrogate.draw(policy, one, 1, np.random.default_rng(0), likeliest=True)
    logits = logits_of(policy, one, [one_task[-2] for one_task in likeliest.decided])
    assert torch.equal(likeliest.decided[0][-1], logits[0].argmax(dim=-1))


def test_the_first_iteration_is_told_a_placement_by_rule() -> None:
    one = lesson(30)
    task = one.tasks[0]
    assert isinstance(task, PlacementTask)
    ruled, begun = best_by_rule(task), one.begun
    told_first = one.view.told(begun[0].numpy())
    assert task.scores(told_first[None].astype(np.int32)) == ruled.score == one.start[0].score
    assert begun[0][0] == 0 and set(begun[0].tolist()) == set(range(len(set(ruled.decisions.tolist()))))
    for number in (1, 2):
        told_first = one.view.told(begun[number].numpy())[None].astype(np.int32)
        assert (
            one.tasks[number].scores(told_first)[0] == one.start[number].score == best_by_rule(one.tasks[number]).score
        )
    without = lesson(30, dataclasses.replace(SMALL, rules=False))
    assert all((start == UNDECIDED).all() for start in without.begun)
    policy = make_go(dataclasses.replace(SMALL, iterations=1), 0)
    for which in (one, without):
        drawn = surrogate.draw(policy, which, 1, np.random.default_rng(0), likeliest=True)
        logits = logits_of(policy, which, [start[None] for start in which.begun])
        assert torch.equal(drawn.decided[0][0], logits[0].argmax(dim=-1))
        chances = logits[0].log_softmax(dim=-1).gather(-1, drawn.decided[0][0][..., None])[..., 0]
        assert torch.allclose(surrogate.log_probs(policy, which, drawn)[0][0][0], chances, atol=1e-6)


def test_devices_of_unequal_speed_keep_their_numbers_at_the_start() -> None:
    chain = Work.of_edges([1.0] * 4, [(k, k + 1) for k in range(3)], [1.0] * 4)
    task = PlacementTask(chain, Devices(("slow", "fast"), np.array([1.0, 3.0]), np.full(2, np.inf),
                                        np.ones((2, 2)), np.zeros((2, 2))))  # fmt: skip
    view = GraphView.of(chain, task.devices)
    assert lesson_of("chain", view, [task], rules=5).begun[0].tolist() == [1, 1, 1, 1]
    assert lesson_of("chain", view, [task]).begun[0].tolist() == [UNDECIDED] * 4


def test_what_was_decided_before_is_kept_by_as_much_as_the_task_says() -> None:
    one, policy = lesson(), make_go(SMALL, 0)
    assert not policy.keeps.any()
    before = [torch.zeros(1, one.view.nodes, dtype=torch.int64), *[torch.full((1, one.view.nodes), UNDECIDED)] * 2]
    plain = logits_of(policy, one, before)
    with torch.no_grad():
        policy.keeps[0] = 0.3
    kept = logits_of(policy, one, before)
    assert torch.allclose(kept[0][..., 0], plain[0][..., 0] + 3.0)
    assert torch.equal(kept[0][..., 1], plain[0][..., 1])
    with torch.no_grad():
        policy.keeps[1] = 5.0
    alone = policy(one.graph, policy.encode(one.graph), before, one.about)[1]
    assert torch.equal(alone, kept[1])  # nothing was decided, so nothing is kept


def test_draws_are_by_their_chances() -> None:
    one, policy = lesson(), make_go(SMALL, 0)
    with torch.no_grad():
        policy.heads[1].weight.zero_()
        policy.heads[1].bias.copy_(torch.tensor([2.0, 0.0] + [-30.0] * 6))
    drawn = surrogate.draw(policy, one, 400, np.random.default_rng(0)).decided[1]
    assert float((drawn == 0).float().mean()) == pytest.approx(1 / (1 + np.exp(-2.0)), abs=0.01)


def test_the_ratio_of_each_node_is_clipped_by_itself() -> None:
    log_ratio = torch.log(torch.tensor([[[1.0, 2.0], [0.5, 1.0]]]))
    advantage = torch.tensor([1.0, -1.0])
    # node by node: min(1, 1), min(2, 1.2); then min(-0.5, -0.8), min(-1, -1)
    assert float(surrogate.node_loss(log_ratio, advantage, 0.2)) == pytest.approx(-(1 + 1.2 - 0.8 - 1) / 4)


def test_a_node_beyond_the_clip_gets_no_gradient_and_its_neighbour_does() -> None:
    log_ratio = torch.tensor([[[0.0, 1.0]]], requires_grad=True)
    surrogate.node_loss(log_ratio, torch.tensor([1.0]), 0.2).backward()
    assert log_ratio.grad is not None
    assert log_ratio.grad[0, 0, 0] != 0
    assert log_ratio.grad[0, 0, 1] == 0


def test_baselines_by_hand() -> None:
    earned = np.array([-3.0, -1.0])
    assert surrogate.advantages_over(earned, -np.inf, "best").tolist() == [-1.0, 1.0]
    assert surrogate.advantages_over(earned, -1.0, "best").tolist() == [-2.0, 0.0]
    assert surrogate.advantages_over(earned, -1.0, "mean").tolist() == [-1.0, 1.0]
    assert surrogate.advantages_over(np.array([-1.0, -1.0]), -5.0, "best").tolist() == [0.0, 0.0]
    assert surrogate.advantages_over(earned, -2.0, "best").tolist() == [-1.0, 1.0]
    assert surrogate.advantages_over(earned, 9.0, "best").min() == -3.0


def test_rewards_by_hand() -> None:
    assert rewards(np.array([4.0, 1.0, 1e9]), 4.0).tolist() == [-1.0, -0.5, -10.0]


def test_the_best_is_remembered_and_shown_again() -> None:
    one, policy = lesson(), make_go(SMALL, 0)
    drawn = surrogate.draw(policy, one, 6, np.random.default_rng(0))
    earned = surrogate.judge(one, drawn)
    surrogate.remember(one, drawn, earned)
    for number, task in one.asked():
        kept = one.kept[number]
        assert kept is not None
        worth = task.scores(one.view.told(kept[-1])[None].astype(np.int32))
        assert rewards(worth, one.reference[number])[0] == one.best[number] == earned[number].max()
    sample, worth = surrogate._with_kept(policy, one, drawn, earned)
    assert sample.decided[1].shape[1] == 7
    assert np.array_equal(sample.decided[1][:, 6].numpy(), one.kept[1])
    assert worth[1][6] == one.best[1]
    assert torch.allclose(sample.log_probs[1][:, 6], surrogate.log_probs(policy, one, sample)[0][1][:, 6], atol=1e-5)


def test_a_placement_is_judged_at_the_nodes_that_it_means() -> None:
    work = Work.of_edges([1.0, 2.0, 4.0], [(2, 0), (0, 1)], [1.0, 1.0, 1.0])  # the order is 2, 0, 1
    devices = Devices(("a", "b"), np.ones(2), np.array([np.inf, np.inf]), np.zeros((2, 2)), np.zeros((2, 2)))
    task = PlacementTask(dataclasses.replace(work, own_seconds=np.array([[1.0, 9], [9, 1.0], [1.0, 9]])), devices)
    one = lesson_of("hand", GraphView.of(task.work, devices), [task])
    drawn = surrogate.Drawn([torch.tensor([[[0, 0, 1]]])], [], [], [])
    assert surrogate.judge(one, drawn)[0][0] == -np.sqrt(3.0 / one.reference[0])


@pytest.mark.parametrize("baseline", ["mean", "best"])
def test_it_learns_a_toy(baseline: str) -> None:
    """A chain with dear hand-overs: everything on one device, whichever, is four times as good as anything drawn."""
    chain = Work.of_edges([1.0] * 12, [(k, k + 1) for k in range(11)], [1.0] * 12)
    task = PlacementTask(chain, Devices.alike(2, bandwidth=0.3, latency=0.0))
    one = lesson_of("chain", GraphView.of(chain, task.devices), [task])
    config = dataclasses.replace(SMALL, lr=1e-2, baseline=baseline, samples=16, entropy=0.0)
    policy = make_go(config, 0)
    before = task.scores(surrogate.draw(policy, one, 50, np.random.default_rng(1)).decided[0][-1].numpy()).mean()
    learnt = fine_tuned(policy, one, 80, np.random.default_rng(0))
    after = task.scores(surrogate.draw(learnt, one, 50, np.random.default_rng(1)).decided[0][-1].numpy()).mean()
    assert after < 0.6 * before
    assert best_of(learnt, one, 1, np.random.default_rng(0))[0][0] == 12.0


def test_an_update_on_two_graphs_is_the_mean_of_both() -> None:
    """Seen by the gradient's share: the same graph twice is the graph once."""
    weights = []
    for count in (1, 2):
        policy = make_go(SMALL, 0)
        optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
        one = lesson()
        drawn = surrogate.draw(policy, one, 4, np.random.default_rng(0))
        advantages = [torch.tensor([1.0, -1.0, 0.5, 0.0])] * 3
        surrogate._step(policy, optimizer, [surrogate._Share(one, drawn, advantages)] * count, 0.01)
        weights.append(torch.cat([weight.detach().flatten() for weight in policy.parameters()]))
    assert torch.allclose(weights[0], weights[1], atol=1e-6)


@pytest.mark.parametrize(
    ("shown", "before", "found"),
    [
        ([2, 2, 0, 1], [UNDECIDED] * 4, [0, 0, 1, 2]),
        ([2, 2, 0, 1], [1, 1, 3, 0], [1, 1, 3, 0]),
        ([0, 0, 0, 1], [1, 1, 0, 0], [1, 1, 1, 0]),
        ([2, 2, 0, 1], [UNDECIDED, 1, 3, UNDECIDED], [1, 1, 3, 0]),
    ],
)
@pytest.mark.parametrize("choices", [4, 6])
def test_devices_are_renamed_to_what_was_decided_before(
    shown: list[int], before: list[int], found: list[int], choices: int
) -> None:
    assert renamed(np.array(shown), np.array(before), choices).tolist() == found


def test_what_is_imitated_begins_under_other_names_of_equal_devices() -> None:
    one, rng = lesson(30), np.random.default_rng(0)
    task, begun = one.tasks[0], one.begun[0].numpy()
    assert isinstance(task, PlacementTask)
    rows = [imitating._under_other_names(task, begun, rng) for _ in range(6)]
    nothing = np.full(one.view.nodes, UNDECIDED)
    assert len({tuple(row.tolist()) for row in rows}) > 1
    assert {tuple(renamed(row, nothing, CHOICES).tolist()) for row in rows} == {tuple(begun.tolist())}
    assert (imitating._under_other_names(task, nothing, rng) == UNDECIDED).all()
    uneven = PlacementTask(task.work, dataclasses.replace(task.devices, speed=np.array([1.0, 2.0])))
    assert np.array_equal(imitating._under_other_names(uneven, begun, rng), begun)


def test_what_is_imitated_goes_on_from_the_start_and_mends_what_was_shown() -> None:
    one, rng = lesson(30), np.random.default_rng(0)
    shown = np.arange(one.view.nodes) % 2
    rows = imitating._told_first(one, 1, shown, rng)
    assert rows.shape == (4, one.view.nodes)
    assert torch.equal(rows[0], one.begun[1]) and (rows >= 0).all()
    assert imitating._told_first(one, 1, None, rng).shape == rows.shape
    agree = [float((imitating.spoiled(np.zeros(200, np.int64), 8, rng) == 0).mean()) for _ in range(50)]
    assert min(agree) > 0.3 and max(agree) < 1.0 and np.mean(agree) > 0.6


def test_numbers_of_equal_devices_mean_nothing_and_others_do() -> None:
    chain = Work.of_edges([1.0] * 3, [(0, 1), (1, 2)], [1.0] * 3)
    same = Devices.alike(2)
    uneven = np.array([[0.0, 1.0], [2.0, 0.0]])
    of_their_own = dataclasses.replace(chain, own_seconds=np.array([[1.0, 2.0]] * 3))
    assert alike(PlacementTask(chain, same)) and alike(PlacementTask(chain, Devices.alike(1)))
    assert not alike(PlacementTask(of_their_own, same)) and not alike(lesson().tasks[1])
    for change in ({"speed": np.array([1.0, 2.0])}, {"memory": np.array([9.0, np.inf])}, {"latency": uneven},
                   {"per_byte": uneven}):  # fmt: skip
        assert not alike(PlacementTask(chain, dataclasses.replace(same, **change)))


def test_what_was_shown_is_learnt() -> None:
    one, policy = lesson(), make_go(SMALL, 0)
    rng = np.random.default_rng(0)
    shown = [demonstrated(one, 200, SMALL.iterations, rng)]
    for number, task in one.asked():
        row = one.view.told(shown[0][number])[None].astype(np.int32)
        assert rewards(task.scores(row), one.reference[number])[0] == one.best[number]
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    losses = [imitate(policy, optimizer, [one], shown, rng) for _ in range(150)]
    assert losses[-1] < 0.3 * losses[0]
    drawn = surrogate.draw(policy, one, 1, rng, likeliest=True)
    agree = [float((drawn.decided[n][-1, 0].numpy() == shown[0][n]).mean()) for n, _ in one.asked()]
    assert min(agree[1:]) > 0.8


def test_the_best_of_more_is_no_worse_and_counts() -> None:
    one, policy = lesson(), make_go(SMALL, 0)
    spent = [task.spent for _, task in one.asked()]
    few = best_of(policy, one, 1, np.random.default_rng(0))
    many = best_of(policy, one, 30, np.random.default_rng(0))
    by_rule = one.start[0].spent
    assert by_rule == 5
    assert [task.spent - old for old, (_, task) in zip(spent, one.asked(), strict=True)] == [1 + 30 - by_rule] * 3
    for (a, _), (b, row), (_, task) in zip(few, many, one.asked(), strict=True):
        assert b <= a
        assert task.scores(row[None])[0] == b
