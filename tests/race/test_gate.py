"""The final gate on known noise: it must not be fooled."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from rlflow.errors import CostError, RuntimeCrashed
from rlflow.race.gate import CLEAR_BLOCKS, LEAST_BLOCKS, GateDecision, decide
from rlflow.race.pacing import OVERRUN_SECONDS
from rlflow.runtime import Samples


class Simulated:
    """Latencies as on a busy machine: drift shared by a round, spikes, and a bias that lasts as long as a session."""

    clock = "wall"

    def __init__(
        self, true_ms: Mapping[str, float], seed: int, *, bias: float = 0.01, noise: float = 0.04, rounds: int = 9
    ) -> None:
        self.true_ms, self.bias, self.noise, self.rounds = true_ms, bias, noise, rounds
        self.rng = np.random.default_rng(seed)
        self.blocks = 0

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
        self.blocks += 1
        rng, shape = self.rng, (self.rounds, len(names))
        session = rng.lognormal(0, self.bias, len(names))
        drift = np.exp(np.cumsum(rng.normal(0, 0.1, self.rounds)))[:, None]
        spikes = np.where(rng.random(shape) < 0.1, rng.uniform(1, 4, shape), 1.0)
        matrix = (
            np.array([self.true_ms[name] for name in names])
            * session
            * drift
            * rng.lognormal(0, self.noise, shape)
            * spikes
        )
        return Samples(matrix, matrix, (1,) * len(names))


def verdicts(true_ms: Mapping[str, float], trials: int, seconds: float = 1e-9, **noise: Any) -> list[GateDecision]:
    candidates = [name for name in true_ms if name != "base"]
    return [
        decide(Simulated(true_ms, trial, **noise), "base", candidates, seconds=seconds, seed=trial)
        for trial in range(trials)
    ]


class TestSimulation:
    @pytest.mark.parametrize("bias", [0.0, 0.01, 0.05])
    def test_equal_candidates_are_no_gain(self, bias: float) -> None:
        found = verdicts({"base": 10.0, "a": 10.0, "b": 10.0, "c": 10.0}, 100, bias=bias)
        assert sum(not decision.improved for decision in found) >= 98

    def test_looking_until_the_interval_is_narrow_does_not_help_equals(self) -> None:
        found = verdicts({"base": 10.0, "a": 10.0}, 60, seconds=0.15, noise=0.01)
        assert sum(not decision.improved for decision in found) >= 58
        assert max(decision.blocks for decision in found) > 2 * LEAST_BLOCKS

    def test_slower_candidates_never_win(self) -> None:
        assert not any(decision.improved for decision in verdicts({"base": 10.0, "a": 10.5, "b": 11.0}, 100))

    def test_a_faster_candidate_wins(self) -> None:
        found = verdicts({"base": 10.0, "same": 10.0, "faster": 9.0}, 100, seconds=60.0)
        assert sum(decision.winner == "faster" for decision in found) >= 97
        covered = [low <= 10 / 9.0 <= high for low, high in (decision.speedup_ci95 or (0, 0) for decision in found)]
        assert sum(covered) >= 90

    def test_figures_come_from_fresh_samples(self) -> None:
        """The best of many equals looks fast where it was chosen; what is reported must not flatter it."""
        found = verdicts({"base": 10.0} | {f"c{k}": 10.0 for k in range(8)}, 60, bias=0.03)
        chosen = [decision for decision in found if decision.challenger]
        first = np.mean([math.log(decision.first_sample[decision.challenger or ""]) for decision in chosen])
        fresh = np.mean([math.log(decision.speedup or 0) for decision in chosen])
        assert first > 0.015
        assert abs(fresh) < 0.01

    @pytest.mark.parametrize("rounds", [1, 9])
    def test_a_single_candidate_is_judged_at_once_and_no_milder(self, rounds: int) -> None:
        def single(ratio: float) -> list[GateDecision]:
            truth = {"base": 10.0, "a": 10.0 * ratio}
            return [
                decide(Simulated(truth, trial, rounds=rounds), "base", ["a"], seconds=1e-9, seed=trial, only=True)
                for trial in range(100)
            ]

        assert sum(not found.improved for found in single(1.0)) >= 98
        assert not any(found.improved for found in single(1.05))
        assert min(found.blocks for found in single(0.8)) == LEAST_BLOCKS
        assert min(found.blocks for found in single(1.2)) == CLEAR_BLOCKS

    def test_a_hopeless_field_is_not_confirmed(self) -> None:
        (found,) = verdicts({"base": 10.0, "slow": 20.0}, 1)
        assert found.challenger is None
        assert "No candidate was faster" in found.reason
        assert found.timings["slow"].ms / found.timings["base"].ms == pytest.approx(2.0, rel=0.1)

    def test_same_seed_same_decision(self) -> None:
        truth = {"base": 10.0, "a": 9.8}
        one, two = verdicts(truth, 1)[0], verdicts(truth, 1)[0]
        assert (one.winner, one.speedup, one.p_value, one.timings) == (
            two.winner,
            two.speedup,
            two.p_value,
            two.timings,
        )

    def test_a_report_is_plain_json(self) -> None:
        (found,) = verdicts({"base": 10.0, "a": 8.0}, 1)
        plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert plain["improved"] is True
        assert plain["winner"] == "a"
        assert plain["timings"]["a"]["ms"] == found.timings["a"].ms
        assert plain["speedup_ci95"][0] < plain["speedup"] < plain["speedup_ci95"][1]


class Given:
    """Blocks of given log ratios, each of which takes a second by a clock of its own."""

    clock = "wall"

    def __init__(self, ratios: Sequence[float], monkeypatch: pytest.MonkeyPatch, original: float = 1.0) -> None:
        self.ratios, self.now, self.original = list(ratios), 0.0, original
        monkeypatch.setattr("rlflow.race.gate.time.perf_counter", lambda: self.now)

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
        self.now += 1.0
        times = {"base": 10.0, "original": 10.0 * self.original}
        matrix = np.array([[times.get(name, 10.0 * math.exp(-self.ratios[0])) for name in names]] * 3)
        del self.ratios[0]
        return Samples(matrix, matrix, (1,) * len(names))


class TestHowLongItGoesOn:
    """The candidate is confirmed at once; what is given are the ratios of the blocks that would be timed."""

    @pytest.mark.parametrize(
        ("ratios", "limits", "blocks", "begin"),
        [
            ([0.1] * 9, {}, 8, "The chosen candidate is 1.105 times"),
            ([0.01, -0.015] + [0.02] * 30, {}, 12, "The chosen candidate"),
            ([0.1] * 6 + [-0.2] + [0.1] * 30, {}, 12, "The chosen candidate"),  # the largest is against it
            ([0.1] * 6 + [-0.2] * 2 + [0.1] * 30, {}, 18, "The chosen candidate"),
            ([-0.01, -0.011] + [0.02 + k / 1e4 for k in range(10)], {"seconds": 6, "at_most": 12.0}, 12, "Undec"),
            ([0.1] * 6 + [-0.2] * 2 + [0.1] * 30, {"seconds": 6}, 12, "This machine is too noisy to tell"),
            ([0.1] * 6 + [-0.2] + [0.1] * 30, {"seconds": 6, "at_most": 9.0}, 9, "This machine is too noisy to tell"),
            ([0.1] * 6 + [-0.2] * 2 + [0.1] * 30, {"seconds": 6, "at_most": 40.0}, 18, "The chosen candidate"),
            ([0.3, -0.3] * 20, {"seconds": 6}, 12, "This machine is too noisy to tell"),
            ([-0.1, -0.11, -0.12, -0.1, -0.11], {}, 5, "No gain"),
            ([0.001, -0.001] * 20, {}, 8, "No gain"),
            ([0.1] * 9, {"seconds": 3, "at_most": 4.0}, 4, "No claim: of the 8 blocks"),
            # the blocks that a claim needs may take longer, if all of them fit into that; further ones may not
            ([0.1] * 9, {"seconds": 3, "at_most": 4.0, "for_least": 8.0}, 8, "The chosen candidate"),
            ([0.1] * 9, {"seconds": 3, "at_most": 4.0, "for_least": 7.7}, 4, "No claim: of the 8 blocks"),
            # and so may those to the look at which it would be claimed
            ([-0.01, -0.02] + [0.1] * 16, {"seconds": 3, "at_most": 6.0, "for_least": 18.0}, 18, "The chosen"),
            ([-0.01, -0.02] + [0.1] * 9, {"seconds": 3, "at_most": 6.0, "for_least": 17.0}, 8, "Undecided"),
            ([-0.01, -0.02] + [0.1] * 9, {"seconds": 3, "at_most": 9.0, "for_least": 17.0}, 9, "Undecided"),
            ([0.1] * 7 + [-0.2] + [0.1, -0.2] * 6, {"seconds": 3, "at_most": 6.0, "for_least": 60.0}, 18, "This"),
            ([0.03, -0.01] * 21, {"seconds": 99}, 42, "No gain"),
            # a claim whose figure is not sharp gets more blocks while there is time, until it is
            ([0.1, 0.3] * 21, {"seconds": 99}, 24, "The chosen candidate is 1.22"),
            ([0.1, 0.3] + [0.2] * 40, {"seconds": 99}, 11, "The chosen candidate is 1.22"),
            ([0.1, 0.3] * 5 + [0.2] * 32, {"seconds": 99}, 26, "The chosen candidate is 1.22"),
            ([0.1, 0.3] * 21, {"seconds": 6}, 12, "The chosen candidate is 1.22"),
            ([0.1, 0.3] * 21, {"seconds": 6, "at_most": 9.5}, 9, "The chosen candidate is 1.2"),
            # and what they say can take the claim away, but not make one
            ([0.05, 0.4] * 4 + [-0.4] * 34, {"seconds": 99}, 42, "No gain"),
        ],
    )  # fmt: skip
    def test_by_the_ratios_of_the_blocks(
        self, ratios: list[float], limits: dict[str, float], blocks: int, begin: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits = {"seconds": 60.0, **limits}
        found = decide(Given(ratios, monkeypatch), "base", ["a"], seed=0, only=True, **limits)  # type: ignore[arg-type]
        assert (found.blocks, found.reason[: len(begin)]) == (blocks, begin)
        assert found.improved == found.reason.startswith("The chosen") == ((found.p_value or 0.0) <= 0.01)

    @pytest.mark.parametrize(
        ("original", "beside", "blocks"), [(1.0, 1, 12), (0.9, 1, 12), (1.009, 1, 12), (1.011, 1, 9), (1.0, 0, 9)]
    )
    def test_the_reserve_is_taken_where_what_is_timed_beside_has_no_use_for_it(
        self, original: float, beside: int, blocks: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given = Given([0.1] * 6 + [-0.2] + [0.1] * 30, monkeypatch, original)
        limits = {"seconds": 6.0, "at_most": 9.0, "reserve": 20.0}
        found = decide(given, "base", ["a"], seed=0, only=True, beside=["original"] * beside, **limits)  # type: ignore[arg-type]
        assert (found.blocks, found.improved) == (blocks, blocks == 12)

    @pytest.mark.parametrize(
        ("original", "timed"), [(1.0, [3] * 4 + [2] * 5), (0.8, [3] * 9), (math.exp(-0.1), [3] * 9)]
    )
    def test_what_is_timed_beside_goes_where_it_is_slower_than_the_candidate(
        self, original: float, timed: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[int] = []
        given = Given([0.1] * 6 + [-0.2] + [0.1] * 30, monkeypatch, original)
        whole = given.block

        def counting(names: Sequence[str], seed: int, seconds: float) -> Samples:
            asked.append(len(names))
            return whole(names, seed, seconds)

        monkeypatch.setattr(given, "block", counting)
        found = decide(given, "base", ["a"], seed=0, only=True, seconds=6.0, at_most=9.0, beside=["original"])
        assert asked == timed
        assert found.timings["original"].rounds == 3 * timed.count(3)

    def test_what_is_timed_beside_is_told_at_the_pace_of_all_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The machine gets slower when the original is timed no more: what was timed then is not slower than it."""
        given, done = Given([0.1] * 40, monkeypatch, 1.02), [0]
        whole = given.block

        def slowing(names: Sequence[str], seed: int, seconds: float) -> Samples:
            done[0] += 1
            wall = whole(names, seed, seconds).wall_ms * (1.0 if done[0] <= 4 else 1.5)
            return Samples(wall, wall, (1,) * len(names))

        monkeypatch.setattr(given, "block", slowing)
        found = decide(given, "base", ["a"], seed=0, only=True, seconds=6.0, at_most=9.0, beside=["original"])
        assert found.blocks == 8
        assert found.timings["original"].ms / found.timings["base"].ms == pytest.approx(1.02)
        assert found.beside["original"] == pytest.approx([0.1 + math.log(1.02)] * 4)

    def test_where_no_block_fits_it_says_so_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given = Given([0.1] * 9, monkeypatch)  # opening the models took 5 of 8 seconds
        found = decide(given, "base", ["a"], seed=0, seconds=8.0, at_most=8.0, started=-5.0)
        assert (found.blocks, found.winner, given.now) == (0, None, 0.0)
        assert found.reason.startswith("No claim: to open and try the models took 5.0 s of the 8 s")

    @pytest.mark.parametrize(
        ("for_least", "rounds"),
        # Opening takes 1 s of a block, a round 0.5; a first block says so.
        [
            (60.0, [1, 2, 2, 2, 2, 2, 2, 2]),
            (20.0, [1, 2, 2, 2, 2, 2, 2, 2]),
            (16.0, [1, 1, 1, 2, 2, 2, 2, 2]),
            (14.2, [1, 1, 1, 1, 1, 2, 2, 2]),
        ],
    )  # fmt: skip
    def test_blocks_in_haste_have_the_rounds_that_there_is_time_for(
        self, for_least: float, rounds: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given, counts = Given([0.1] * 9, monkeypatch), []

        def block(names: Sequence[str], seed: int, seconds: float) -> Samples:
            count = max(1, int(max(seconds - 1.0, min(seconds, 0.5)) / 0.5))  # as WorkerSampler does
            given.now += 1.0 + 0.5 * count
            counts.append(count)
            matrix = np.array([[250.0, 250.0 * math.exp(-0.1)]] * count)
            return Samples(matrix, matrix, (1, 1))

        monkeypatch.setattr(given, "block", block)
        found = decide(given, "base", ["a"], seed=0, only=True, seconds=4.0, at_most=4.0, for_least=for_least)
        assert found.improved
        assert given.now <= for_least
        assert counts == rounds

    @pytest.mark.parametrize(
        ("ratios", "slow", "blocks", "begin"),
        [
            ([0.1] * 9, 6, 8, "The chosen candidate"),  # the last two take longer than it was known that they would
            ([0.1] * 9, 7, 8, "The chosen candidate"),
            ([0.1] * 5 + [-0.01] + [0.1] * 3, 6, 8, "The chosen candidate"),
            ([0.1] * 4 + [-0.01] * 2 + [0.1] * 3, 6, 7, "No claim: of the 8 blocks"),
            ([0.1] * 9, 4, 5, "No claim: of the 8 blocks"),
        ],
    )
    def test_the_last_blocks_are_not_saved_where_those_before_show_the_gain(
        self, ratios: list[float], slow: int, blocks: int, begin: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given = Given(ratios, monkeypatch)
        whole = given.block

        def slowing(names: Sequence[str], seed: int, seconds: float) -> Samples:
            given.now += 2.0 if len(ratios) - len(given.ratios) >= slow else 0.0
            assert seconds >= 0.0
            return whole(names, seed, seconds)

        monkeypatch.setattr(given, "block", slowing)
        found = decide(given, "base", ["a"], seed=0, only=True, seconds=3.0, at_most=4.0, for_least=8.0)
        assert (found.blocks, found.reason[: len(begin)]) == (blocks, begin)

    def test_what_the_selection_left_may_be_too_little(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given = Given([0.1] * 9, monkeypatch)
        found = decide(given, "base", ["a", "b"], seed=0, seconds=3.0, at_most=1.5)
        assert (found.winner, given.now) == (None, 1.0)
        assert found.reason.startswith("No claim: to open and try")

    @pytest.mark.parametrize(("at_most", "short"), [(20.0, False), (9.5, False), (8.5, False), (7.5, True)])
    def test_blocks_are_short_where_those_of_a_claim_would_not_fit(
        self, at_most: float, short: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[float] = []

        class Asked(Given):
            def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
                asked.append(seconds)
                return super().block(names, seed, seconds)

        decide(Asked([0.1] * 9, monkeypatch), "base", ["a"], seed=0, only=True, seconds=6.0, at_most=at_most)
        assert (asked[0] > 0.0, asked[1] == 0.0) == (True, short)


class Failing(Simulated):
    """Brings the runtime down whenever one model is among the timed, from a given block on."""

    def __init__(self, culprit: str, after: int, *args: Any, **noise: float) -> None:
        super().__init__(*args, **noise)
        self.culprit, self.after = culprit, after

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
        if self.culprit in names and self.blocks >= self.after:
            raise RuntimeCrashed("The runtime's process died while timing models (killed by SIGSEGV).")
        return super().block(names, seed, seconds)


class TestCrashesWhileTiming:
    def test_the_culprit_is_found_and_dropped(self) -> None:
        sampler = Failing("b", 0, {"base": 10.0, "a": 9.0, "b": 1.0, "c": 9.5}, 0)
        found = decide(sampler, "base", ["a", "b", "c"], seconds=1e-9, seed=0)
        assert found.winner == "a"
        assert "SIGSEGV" in found.dropped["b"]

    def test_a_crash_in_the_confirmation_ends_without_a_winner(self) -> None:
        found = decide(Failing("a", 5, {"base": 10.0, "a": 5.0}, 0), "base", ["a"], seconds=1e-9, seed=0)
        assert found.winner is None
        assert "failed while it was timed" in found.reason
        assert found.timings["base"].ms > 0

    def test_all_candidates_gone(self) -> None:
        found = decide(Failing("a", 0, {"base": 10.0, "a": 5.0}, 0), "base", ["a"], seconds=1e-9, seed=0)
        assert found.winner is None
        assert list(found.dropped) == ["a"]

    def test_a_baseline_that_cannot_be_timed_is_an_error(self) -> None:
        with pytest.raises(CostError, match="baseline could not be timed"):
            decide(Failing("base", 0, {"base": 10.0, "a": 5.0}, 0), "base", ["a"], seconds=1e-9, seed=0)


class Disturbed(Simulated):
    """Besides noise: other programs that slow the machine for some blocks, or step by step, or in some order."""

    def __init__(self, kind: str, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.kind = kind

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
        plain = super().block(names, seed, seconds).wall_ms
        rounds = np.arange(len(plain))[:, None]
        factors = {
            "slow blocks": np.full_like(plain, 3.0 if self.rng.random() < 0.3 else 1.0),
            "throttling": np.full_like(plain, 1.05**self.blocks),
            "alternating": 1.0 + 0.5 * ((rounds + self.blocks) % 2) * np.ones_like(plain),
            "one victim": np.where(np.arange(len(names)) == self.rng.integers(len(names)), 1.1, 1.0),
            "outliers": np.where(self.rng.random(plain.shape) < 0.05, 50.0, 1.0),
        }[self.kind]
        return Samples(plain * factors, plain * factors, (1,) * len(names))


#: Over a thousand seeds 0.2 to 0.7 % of equals are taken for faster; among any hundred it may be three by chance.
TRIALS = 200
DISTURBANCES = ("slow blocks", "throttling", "alternating", "one victim", "outliers")


class TestFaultInjection:
    @pytest.mark.parametrize("kind", DISTURBANCES)
    def test_a_single_equal_is_no_gain(self, kind: str) -> None:
        """Where nothing was chosen on a first sample, half of which would have ended it."""
        truth = {"base": 10.0, "a": 10.0}
        found = [decide(Disturbed(kind, truth, seed), "base", ["a"], seconds=1e-9, seed=seed, only=True)
                 for seed in range(TRIALS)]  # fmt: skip
        assert sum(not decision.improved for decision in found) >= 0.98 * TRIALS

    @pytest.mark.parametrize("kind", DISTURBANCES)
    def test_equals_are_no_gain(self, kind: str) -> None:
        found = [decide(Disturbed(kind, {"base": 10.0, "a": 10.0}, seed), "base", ["a"], seconds=1e-9, seed=seed)
                 for seed in range(TRIALS)]  # fmt: skip
        assert sum(not decision.improved for decision in found) >= 0.98 * TRIALS

    @pytest.mark.parametrize("kind", DISTURBANCES)
    def test_five_per_cent_slower_never_wins(self, kind: str) -> None:
        truth = {"base": 10.0, "a": 10.5}
        found = [decide(Disturbed(kind, truth, seed), "base", ["a"], seconds=1e-9, seed=seed) for seed in range(100)]
        assert not any(decision.improved for decision in found)

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
    def test_a_clock_that_answers_nonsense_for_a_candidate(self, value: float) -> None:
        class Broken(Simulated):
            def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
                matrix = super().block(names, seed, seconds).wall_ms
                matrix[:, [name == "b" for name in names]] = value
                return Samples(matrix, matrix, (1,) * len(names))

        found = decide(Broken({"base": 10.0, "a": 8.0, "b": 1.0}, 0), "base", ["a", "b"], seconds=1e-9, seed=0)
        assert found.winner == "a"
        assert found.dropped == {"b": f"The clock answered {value:g} milliseconds for it, which is no duration."}

    def test_a_clock_that_answers_nonsense_for_the_baseline(self) -> None:
        class Broken(Simulated):
            def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
                matrix = super().block(names, seed, seconds).wall_ms * np.nan
                return Samples(matrix, matrix, (1,) * len(names))

        with pytest.raises(CostError, match=r"baseline could not be timed: .* nan milliseconds"):
            decide(Broken({"base": 10.0, "a": 8.0}, 0), "base", ["a"], seconds=1e-9, seed=0)

    def test_a_hang_while_it_is_timed_is_one_sentence(self) -> None:
        class Hanging(Failing):
            def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
                if "b" in names and self.blocks >= 2:
                    raise RuntimeCrashed("The runtime's process did not answer within 120 s.", timed_out=True)
                return Simulated.block(self, names, seed, seconds)

        sampler = Hanging("b", 2, {"base": 10.0, "a": 8.0, "b": 7.9}, 0, bias=0.0, noise=0.001)
        found = decide(sampler, "base", ["a", "b"], seconds=1e-9, seed=0)
        assert found.winner == "a"
        assert "did not answer within 120 s" in found.dropped["b"]

    def test_a_noisy_machine_is_named(self) -> None:
        (found,) = verdicts({"base": 10.0, "a": 9.9}, 1, bias=0.4)
        assert found.winner is None
        assert "too noisy to tell" in found.reason or "No candidate was faster" in found.reason

    def test_drift_is_told(self) -> None:
        found = decide(Disturbed("throttling", {"base": 10.0, "a": 9.5}, 1), "base", ["a"], seconds=60, seed=1)
        assert found.winner == "a"
        assert found.drift is not None
        assert found.drift > 1.1


class Slow(Simulated):
    """Blocks that take a while by a clock of their own."""

    def __init__(self, each: float, monkeypatch: pytest.MonkeyPatch, *args: Any) -> None:
        super().__init__(*args)
        self.each, self.now = each, 0.0
        monkeypatch.setattr("rlflow.race.gate.time.perf_counter", lambda: self.now)

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
        self.now += max(self.each, seconds)
        return super().block(names, seed, seconds)


class TestTime:
    def test_large_models_overrun_a_little_and_no_more(self, monkeypatch: pytest.MonkeyPatch) -> None:
        truth = {"base": 10.0, "a": 8.0, "b": 9.0}
        quick = decide(Slow(0.5, monkeypatch, truth, 0), "base", ["a", "b"], seconds=20.0, seed=0)
        assert (quick.winner, quick.blocks >= CLEAR_BLOCKS) == ("a", True)
        assert quick.seconds <= 21.5
        large = decide(Slow(5.0, monkeypatch, truth, 0), "base", ["a", "b"], seconds=20.0, seed=0)
        assert large.winner == "a"
        assert large.blocks == LEAST_BLOCKS
        assert large.seconds <= 55
        huge = decide(Slow(15.0, monkeypatch, truth, 0), "base", ["a", "b"], seconds=20.0, seed=0)
        assert huge.winner is None
        assert huge.seconds <= OVERRUN_SECONDS + 15
        assert f"No claim: of the {LEAST_BLOCKS} blocks" in huge.reason
        assert "--gate-seconds" in huge.reason

    def test_an_interrupt_before_anything_is_confirmed(self) -> None:
        sampler = Simulated({"base": 10.0, "a": 8.0}, 0)
        found = decide(sampler, "base", ["a"], seconds=1e-9, seed=0, stop=lambda: True)
        assert (found.winner, found.interrupted, sampler.blocks) == (None, True, 1)
        assert "interrupted" in found.reason
        assert found.timings["base"].ms > 0

    @pytest.mark.parametrize(("blocks", "winner"), [(6, None), (11, "a")])
    def test_an_interrupt_keeps_what_is_confirmed(self, blocks: int, winner: str | None) -> None:
        sampler = Simulated({"base": 10.0, "a": 9.0}, 0)
        found = decide(sampler, "base", ["a"], seconds=1e9, seed=0, stop=lambda: sampler.blocks >= blocks)
        assert found.winner == winner
        assert "interrupted after" in found.reason
        assert sampler.blocks == blocks
