"""What a tuning begins with: a prior from other subgraphs, an actor's weights, and how a batch is chosen."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from rlflow.search import Budget
from rlflow.tuner import Observed, RecordedEngine, TransferPrior, Tuner, WarmStart, kernel_features, method
from rlflow.tuner.kernel_engine import space_of
from rlflow.tuner.program_scores import KernelRidge
from rlflow.tuner.spaces import Space, TensorProgram
from rlflow.tuner.tasks import TuningTask
from rlflow.tuner.warm_starts import _MOST_LEARNT, SHIPPED, shipped_prior
from tests.tuner import toys

TABLE = SHIPPED


def toy_prior() -> TransferPrior:
    """From a toy that is twice as slow throughout."""
    other = toys.engine(2).only(1)
    return TransferPrior.of(other, other.seconds)


def test_a_prior_knows_what_is_alike_and_nothing_else() -> None:
    prior, subgraph = toy_prior(), toys.engine().subgraphs[0]
    levels = prior.levels(subgraph)
    assert levels is not None
    programs = toys.SPACE.random(np.random.default_rng(0), 300)
    true = np.array([-math.log(toys.seconds_of(toys.SPACE, one)) for one in programs])
    runs = np.isfinite(true)
    found = levels(toys.engine().features(0, programs))
    assert np.corrcoef(found[runs], true[runs])[0, 1] > 0.8
    for other in (
        replace(subgraph, family="another"),
        replace(subgraph, sizes=(1, 2)),
        replace(subgraph, space=toys.Space((toys.GEMM,))),
    ):
        assert prior.levels(other) is None


def test_a_prior_of_nothing_expects_nothing() -> None:
    engine = toys.engine()
    assert TransferPrior.of(engine, [{}]).levels(engine.subgraphs[0]) is None


def test_a_prior_of_too_many_programs_keeps_the_best() -> None:
    subgraph, count = toys.engine().subgraphs[0], 3 * _MOST_LEARNT
    features = np.linspace(0.0, 1.0, count)[:, None]
    levels = TransferPrior([Observed(subgraph, features, np.exp(features[:, 0]))]).levels(subgraph)
    assert levels is not None
    assert levels(np.array([[0.0], [1.0]])) == pytest.approx([0.0, -1.0], abs=0.05)


@pytest.mark.parametrize("name", ["evolutionary", "harl"])
def test_a_warm_start_measures_no_blind_batch_and_finds_more_in_few_trials(name: str) -> None:
    if name == "harl":
        pytest.importorskip("torch")

    def best(start: WarmStart | None) -> float:
        found = [Tuner(toys.engine(), method(name), seed, start).run(Budget(measurements=8)) for seed in range(3)]
        return float(np.mean([math.log(one.best[0][1]) for one in found]))  # type: ignore[index]

    assert best(WarmStart(toy_prior())) < best(None) - 0.3


def test_the_random_method_knows_no_prior() -> None:
    one = Tuner(toys.engine(), method("random"), 0, WarmStart(toy_prior())).run(Budget(measurements=8))
    other = Tuner(toys.engine(), method("random"), 0).run(Budget(measurements=8))
    assert one.rounds[0].programs == other.rounds[0].programs


def test_a_prior_tells_the_bandit_which_sketch_promises_most() -> None:
    tuner = Tuner(toys.engine(), method("evolutionary"), 0, WarmStart(toy_prior()))
    fast, slow = tuner._sketches[0].scores()
    assert fast > slow + 0.2


def test_measurements_correct_a_prior_that_is_wrong() -> None:
    """It says that everything is alike but one program, which is ten times too good."""
    engine = toys.engine()
    programs = toys.SPACE.random(np.random.default_rng(0), 60)
    wrong = engine.features(0, programs[:1])[0]
    task = TuningTask(
        0, engine, KernelRidge(), lambda features: np.where((features == wrong).all(axis=1), math.log(10.0), 0.0)
    )
    assert task.predict(programs[:2]).tolist() == pytest.approx([10.0, 1.0])
    task.add(programs, engine.measure(0, programs))
    assert task.predict(programs[:1])[0] < 0.7
    others = [one for one in dict.fromkeys(programs) if one != programs[0]]
    true = np.array(engine.measure(0, others))
    runs = np.isfinite(true)
    assert np.log(task.predict(others)[runs]) == pytest.approx(np.log(task.seconds / true[runs]), abs=1.0)


def test_a_batch_is_not_spent_on_programs_that_are_alike() -> None:
    """The model knows two ends of a line and nothing of its middle; the first choice makes its neighbour less hopeful
    than the other end.
    """

    class Line(RecordedEngine):
        def features(self, subgraph, programs):
            places = {one: float(at) for at, one in enumerate(self.subgraphs[0].space.programs())}
            return np.array([[places[one]] for one in programs])

    toy = toys.engine(1, toys.Space((toys.FLAT,)))
    engine = Line(toy.place, toy.subgraphs, [toys.times_of(toys.Space((toys.FLAT,)))], 0.5)
    programs = list(engine.subgraphs[0].space.programs())
    task = TuningTask(0, engine, KernelRidge((0.2,), (1e-3,)))
    task.add([programs[0], programs[-1]], [1.0, 1.0 + 1e-6])
    task.model._variance = 1.0  # type: ignore[attr-defined]
    middle = programs[1:-1]
    first, second = task.most_hopeful(middle, 2, optimism=1.0)
    assert abs(programs.index(first) - programs.index(second)) > len(programs) // 8
    alone = task.most_hopeful(middle, 1, optimism=1.0)
    assert alone == [first]
    assert task.most_hopeful([], 3, 1.0) == task.most_hopeful(middle, 0, 1.0) == []
    assert len(task.most_hopeful(middle[:2], 5, 0.5)) == 2


def test_the_table_that_is_shipped_is_of_sketches_that_todays_kernels_have() -> None:
    table = RecordedEngine.read(SHIPPED)
    today = space_of("convolution")
    for one in table.subgraphs:
        assert set(one.space.sketches) <= set(today.sketches)
        assert {"winograd-2x2-kept", "winograd-4x4-kept"} <= {sketch.name for sketch in one.space.sketches}
    assert {one.family for one in table.subgraphs} == {"convolution"}
    assert shipped_prior([replace(table.subgraphs[0], family="norm")]) is None


def test_the_shipped_prior_knows_programs_by_their_sketches_not_by_their_numbers() -> None:
    """A space lacks sketches in between that the table has: the levels of the others are the same."""
    one = RecordedEngine.read(SHIPPED).subgraphs[0]
    some = tuple(sketch for sketch in one.space.sketches if not sketch.name.endswith("-kept"))
    assert 0 < len(some) < len(one.space.sketches)
    levels = []
    for subgraph in (one, replace(one, space=Space(some))):
        prior = shipped_prior([subgraph])
        assert prior is not None
        predict = prior.levels(subgraph)
        assert predict is not None
        number = [sketch.name for sketch in subgraph.space.sketches].index("winograd-4x4")
        programs = [TensorProgram(number, values) for values in ((0, 0), (3, 2), (11, 6))]
        levels.append(predict(kernel_features.features(subgraph, programs)))
    assert np.corrcoef(*levels)[0, 1] > 0.95


def test_subgraphs_learn_from_one_another() -> None:
    """After the first rounds of two toys, the cost model of the third knows more than nothing before it is measured."""

    def third(transfer: bool):
        tuner = Tuner(toys.engine(3), method("evolutionary", subgraphs="round-robin", transfer=transfer), 0)
        tuner.run(Budget(measurements=8))
        tuner._transfer(tuner.tasks[2])
        return tuner.tasks[2]

    assert third(True).informed
    assert not third(False).informed


def test_an_actor_begins_with_the_weights_it_is_given() -> None:
    pytest.importorskip("torch")
    taught = Tuner(toys.engine(), method("harl"), 7)
    taught.run(Budget(measurements=16))
    weights = taught.proposer.agent.weights()  # type: ignore[attr-defined]
    other = Tuner(toys.engine(), method("harl"), 8, WarmStart(weights=weights))
    begun = other.proposer.agent.weights()  # type: ignore[attr-defined]
    assert all((begun[name] == value).all() for name, value in weights.items())


def test_other_shapes_of_the_recorded_table_lead_to_the_optimum_of_one_in_few_trials() -> None:
    """Four trials by what seven other shapes say are nearer to the optimum than four of chance are, on average over
    the shapes; the shape that is tuned is never among the seven.
    """
    table = RecordedEngine.read(TABLE)
    warm, chance = [], []
    for number in range(len(table.subgraphs)):
        others = table.only(*(at for at in range(len(table.subgraphs)) if at != number))
        start = WarmStart(TransferPrior.of(others, others.seconds))
        optimum = table.optimum(number)[1]
        found = Tuner(table.only(number), method("evolutionary"), 0, start).run(Budget(measurements=4))
        warm.append(math.log(found.best[0][1] / optimum))  # type: ignore[index]
        times = np.array(list(table.seconds[number].values()))
        draws = [np.random.default_rng(seed).permutation(times)[:4].min() for seed in range(20)]
        chance.append(float(np.mean(np.log(np.array(draws) / optimum))))
    assert np.mean(warm) < np.mean(chance)
