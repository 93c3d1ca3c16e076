"""A trained agent as a search strategy, and on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from policies import needs_torch
from worlds import BY_NAME

from rlflow import nn, search
from rlflow.cli.train import expand
from rlflow.errors import ModelError, UsageError
from rlflow.search import StopReason
from rlflow.testing import TINY, optimum


def test_walks_begin_with_the_greedy_one_and_converge() -> None:
    problem = BY_NAME["exclusive"].problem("500x")
    result = search.solve(problem, "xrlflow")
    assert result.stop_reason is StopReason.CONVERGED  # all was opened long before the budget was spent
    assert result.counts.expansions == problem.meter.expansions < 500
    greedy = search.solve(BY_NAME["exclusive"].problem("500x"), "xrlflow:decode=greedy")
    assert result.cost_after_ms <= greedy.cost_after_ms


def test_a_wider_beam_looks_at_more() -> None:
    found = [
        search.solve(BY_NAME["twins"].problem("500x"), f"xrlflow:decode=beam,width={width},horizon=3,descent=false")
        for width in (1, 3)
    ]
    assert found[0].counts.expansions < found[1].counts.expansions


@pytest.mark.parametrize("tiny", TINY, ids=lambda tiny: tiny.name)
def test_the_first_walk_is_greedy_whatever_the_policy(tiny) -> None:
    greedy = search.solve(tiny.problem("500x"), "greedy")
    found = search.solve(tiny.problem("500x"), "xrlflow:decode=greedy")
    assert found.cost_after_ms <= greedy.cost_after_ms * (1 + 1e-9)


@needs_torch
def test_the_number_of_threads_is_given_back() -> None:
    import torch

    before = torch.get_num_threads()
    search.solve(BY_NAME["merge"].problem("5x"), "xrlflow")
    assert torch.get_num_threads() == before


def test_a_rule_that_the_checkpoint_never_saw_is_no_obstacle() -> None:
    """The tiny problems' rules are in no shipped library."""
    result = search.solve(BY_NAME["twins"].problem("40x"), "xrlflow")
    assert result.cost_after_ms < result.cost_before_ms


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("xrlflow-mcts:exploration=0", "exploration above 0"),
        ("xrlflow:decode=luck", "decode=luck"),
        ("xrlflow:temperature=0", "temperature above 0"),
        ("xrlflow:width=0", "width"),
        ("xrlflow:train=long", "training budget is 'long'"),
        ("xrlflow-mcts:train=0", "training budget is '0'"),
        ("mcts-policy:trust=2", "trust from 0 to 1"),
        ("mcts-policy:leaf=luck", "descent or value"),
        ("mcts-policy:depth=0", "a depth of at least 1"),
    ],
)
def test_options_that_make_no_sense_are_sentences(spec: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        search.make(spec)


@needs_torch
@pytest.mark.parametrize("spec", ["xrlflow:train=40", "xrlflow-mcts:train=1s"])
def test_training_on_the_given_graph_is_not_part_of_the_search(spec: str) -> None:
    problem = BY_NAME["exclusive"].problem("6x,500s")
    result = search.solve(problem, spec)
    assert result.counts.expansions <= 6
    assert result.cost_after_ms < result.cost_before_ms


@needs_torch
def test_training_before_the_search_depends_on_the_seed_alone() -> None:
    found = [search.solve(BY_NAME["plateau"].problem("20x", seed=3), "xrlflow:train=60") for _ in range(2)]
    assert found[0].curve[-1].cost_ms == found[1].curve[-1].cost_ms
    assert found[0].trace == found[1].trace


def test_drawn_walks_are_known_to_differ_by_seed() -> None:
    drawn = {row["name"]: row["randomised"] for row in search.catalogue()}
    assert drawn["xrlflow"]
    assert not drawn["xrlflow-mcts"]


def test_what_the_way_down_promises_costs_no_expansion() -> None:
    from rlflow.agents.xrlflow.trained import load_policy
    from rlflow.agents.xrlflow.walker import Walker, downhill

    problem = BY_NAME["exclusive"].problem("500x")
    walker = Walker.of(problem, load_policy(), 1.0, 64)
    gains = downhill(walker.walks.root)
    assert list(gains) == sorted(gains, reverse=True)
    assert gains.sum() > 0
    assert problem.meter.expansions == 0  # prices of candidates are known without opening them
    way = walker.descend()
    assert way[0] is walker.walks.root
    assert [place.node.cost for place in way] == sorted((place.node.cost for place in way), reverse=True)


def test_among_improvements_of_nearly_one_probability_the_steepest_is_taken() -> None:

    from rlflow.agents.xrlflow.trained import load_policy
    from rlflow.agents.xrlflow.walker import Walker, likeliest

    walker = Walker.of(BY_NAME["exclusive"].problem("500x"), load_policy(), 1.0, 64)
    episode = walker.begin()
    table = episode.place.table
    improving = np.flatnonzero(table.cost < table.node.cost)
    even = np.full(episode.candidates, 1 / episode.candidates)
    assert likeliest(episode, even) == 1 + int(np.argmin(table.cost))
    sure = np.zeros(episode.candidates)
    sure[1 + improving[-1]] = 1.0
    assert likeliest(episode, sure) == 1 + improving[-1]
    stop = np.zeros(episode.candidates)
    stop[0], stop[1 + improving[0]] = 0.9, 0.1
    assert likeliest(episode, stop) == 1 + improving[0]  # the way down asks for no opinion
    for place in walker.descend()[1:]:
        episode = walker.begin(place)
    stop = np.zeros(episode.candidates)
    stop[0] = 1.0
    assert likeliest(episode, stop) == 0


def test_a_detour_is_taken_where_the_policy_is_sure_of_it() -> None:

    from rlflow.agents.xrlflow.trained import load_policy
    from rlflow.agents.xrlflow.walker import Walker, likeliest

    episode = Walker.of(BY_NAME["valley"].problem("500x"), load_policy(), 1.0, 64).begin()
    table = episode.place.table
    dearer = int(np.argmax(table.cost))
    assert table.cost[dearer] > table.node.cost
    sure = np.full(episode.candidates, 0.1)
    sure[1 + dearer] = 0.9
    assert likeliest(episode, sure) == 1 + dearer


def test_a_budget_that_is_only_enough_for_the_way_down_is_spent_on_it() -> None:
    from rlflow.agents.xrlflow.trained import load_policy
    from rlflow.agents.xrlflow.walker import Walker, downhill
    from rlflow.agents.xrlflow.ways import Lead

    for budget, ended in (("short", True), ("500x", False)):
        start = BY_NAME["exclusive"].problem("500x")
        down = len(downhill(Walker.of(start, load_policy(), 1.0, 64).walks.root))
        problem = BY_NAME["exclusive"].problem(f"{down}x" if budget == "short" else budget)
        walker = Walker.of(problem, load_policy(), 1.0, 64)
        assert Lead(walker).enough([walker.walks.root]) is ended


def test_a_walk_that_promises_no_more_than_the_way_down_yields_to_it() -> None:
    from rlflow.agents.xrlflow.trained import load_policy
    from rlflow.agents.xrlflow.walker import Walker
    from rlflow.agents.xrlflow.ways import Lead

    problem = BY_NAME["exclusive"].problem("500x")
    walker = Walker.of(problem, load_policy(), 1.0, 64)
    lead, way = Lead(walker), walker.descend()
    for scale, no_better in ((100.0, True), (0.0, False)):
        lead.promised = lead.promised * scale
        assert lead.no_better(way) is no_better
    assert not lead.no_better(way[:1])  # nothing was walked


def test_a_checkpoint_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(ModelError, match=r"no checkpoint nowhere\.npz"):
        search.solve(BY_NAME["twins"].problem("5x"), "xrlflow:checkpoint=nowhere.npz")


def test_only_training_needs_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn, "available", lambda: "torch is not installed; pip install 'rlflow[rl]'")
    assert search.unavailable("xrlflow:decode=beam") is None
    assert search.unavailable("rlflow") is not None
    for spec in ("xrlflow:train=20", "xrlflow-mcts:train=2s"):
        with pytest.raises(UsageError, match=r"train=.* cannot be used here: torch is not installed"):
            search.solve(BY_NAME["twins"].problem("5x"), spec)


@pytest.mark.parametrize("spec", ["xrlflow", "xrlflow:decode=beam", "xrlflow-mcts"])
def test_a_search_opens_no_torch(spec: str) -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from rlflow import search\nfrom rlflow.testing import TINY\n"
        f"found = search.solve(TINY[0].problem('20x'), {spec!r})\n"
        "assert found.counts.expansions > 0 and found.cost_after_ms <= found.cost_before_ms\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_walks_that_meet_a_graph_again_do_not_encode_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlflow.nn.native_policy import NativePolicy

    encoded = []
    encode = NativePolicy.encode
    monkeypatch.setattr(NativePolicy, "encode", lambda self, graph: encoded.append(id(graph)) or encode(self, graph))
    result = search.solve(BY_NAME["exclusive"].problem("500x"), "xrlflow")
    assert 0 < len(encoded) <= result.counts.expansions + 1


def test_braces_stand_for_several_models() -> None:
    assert expand("a?x={1,2}&y={3,4}") == ["a?x=1&y=3", "a?x=1&y=4", "a?x=2&y=3", "a?x=2&y=4"]
    assert expand("plain") == ["plain"]


@needs_torch
def test_training_from_the_command_line(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from rlflow.agents.xrlflow.trained import PolicyCheckpoint
    from rlflow.cli import main

    out = tmp_path / "agent.npz"
    arguments = ["train", "xrlflow", "--models", "nasrnn?seq=2", "--rules", "merge", "--steps", "8", "--out", str(out)]
    small = ["--set", "policy.hidden=8", "--set", "policy.heads=2", "--set", "horizon=3", "--set", "episodes=2"]
    done = CliRunner().invoke(main, [*arguments, *small, "--logs", str(tmp_path / "logs")])
    assert done.exit_code == 0, done.output
    assert "Trained: " in done.output
    assert PolicyCheckpoint.load(out).card["models"] == ["nasrnn?seq=2"]
    assert json.loads((tmp_path / "logs" / "log.jsonl").read_text().splitlines()[0])["kind"] == "update"
    assert search.solve(BY_NAME["twins"].problem("5x"), f"xrlflow:checkpoint={out},descent=no").counts.expansions <= 5


@needs_torch
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--models", "bert-bas"], "bert-base"),
        (["--models", "nasrnn", "--preset", "best"], "no training preset"),
        (["--models", "nasrnn", "--set", "lr"], "has no value"),
        (["--models", "nasrnn", "--device", "cuda"], "finds no GPU"),
    ],
)
def test_mistakes_on_the_command_line_are_sentences(arguments: list[str], words: str, tmp_path: Path) -> None:
    import torch
    from click.testing import CliRunner

    from rlflow.cli import main

    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    done = CliRunner().invoke(main, ["train", "xrlflow", "--out", str(tmp_path / "x.npz"), *arguments])
    assert done.exit_code == 2, done.output
    assert words in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["exclusive", "plateau", "valley", "merge"])
def test_the_tree_opens_every_graph_once_and_so_finds_the_optimum(name: str) -> None:
    known = optimum(BY_NAME[name])
    result = search.solve(BY_NAME[name].problem("2000x"), "xrlflow-mcts")
    assert result.stop_reason is StopReason.CONVERGED
    assert result.cost_after_ms == pytest.approx(known.cost_ms)
    assert result.counts.expansions == known.graphs - 1


def test_a_tree_search_without_trust_is_the_plain_one() -> None:
    plain, led = (search.solve(BY_NAME["plateau"].problem("60x", seed=1), s) for s in ("mcts", "mcts-policy:trust=0"))
    assert led.trace == plain.trace
    assert led.counts == plain.counts


@pytest.mark.parametrize("leaf", ["descent", "value"])
@pytest.mark.parametrize("name", ["exclusive", "valley"])
def test_a_tree_search_by_a_policy_finds_the_optimum(name: str, leaf: str) -> None:
    found = search.solve(BY_NAME[name].problem("2000x"), f"mcts-policy:trust=1,leaf={leaf}")
    assert found.cost_after_ms == pytest.approx(optimum(BY_NAME[name]).cost_ms)


def test_the_prior_is_the_mixture_that_was_asked_for() -> None:
    from rlflow.agents.xrlflow.led import PolicyMcts, judged
    from rlflow.agents.xrlflow.trained import load_policy

    problem = BY_NAME["exclusive"].problem("500x")
    table = problem.moves(problem.root())
    likely, value = judged(problem, table, *load_policy())
    assert likely.sum() == pytest.approx(1)
    assert len(likely) == len(table)
    prior = np.full(len(table), 1 / len(table))
    np.testing.assert_allclose(PolicyMcts(trust=0.25).guided(problem, table, prior), 0.75 * prior + 0.25 * likely)
    assert PolicyMcts().promise(problem, table) is None
    assert PolicyMcts(leaf="value").promise(problem, table) == max(0.0, value)
    assert problem.meter.expansions == 0
