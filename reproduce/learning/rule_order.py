"""Which rule next to an e-graph that must stay small: does a learned order pay in guided equality saturation?

    python reproduce/learning/rule_order.py train                half a minute of one core: build/learning/order.npz
    python reproduce/learning/rule_order.py run --resume         the unseen half, three CPU seconds each
    python reproduce/learning/rule_order.py tables

``eqsat:scheduler=mcts`` searches over rules, each applied once everywhere, and an e-graph is worth the best graph that
is extracted from it. ``guided``: as published, all rules alike. ``by levin``: those first that the policy of chains
thinks likely which ships. ``by order``: those that this file learns on the families to train on, by expert iteration.
What backtracking did begins it; then the search by what was learned finds as much in fewer steps, or more.
``untrained``: the same search by weights of zero. All without a way down from what is chosen, by the analytic cost of a
CPU; saturation and greedy search stand beside them.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "common")]

import results  # from the folder "common"
from chains import LESSONS  # from this folder
from families import CONFIG, read
from run import RULES, WEIGHTS, Rows, priced, searched

from rlflow import search
from rlflow.agents.chain_lessons.chain_fit import fitted
from rlflow.agents.chain_lessons.chain_training import families_of
from rlflow.search import Problem
from rlflow.search.eqsat.guided import RuleSearch
from rlflow.search.levin.chain_policy import Candidates, ChainPolicy, ChainShape, by_hand
from rlflow.search.levin.trained import LevinCheckpoint, LevinConfig

OUT = HERE / "results" / "rule-order.jsonl"
ORDER, ZERO = WEIGHTS / "order.npz", WEIGHTS / "order-zero.npz"
#: Of a training: rounds, simulations of a search, and graphs that the demonstrations may open.
ROUNDS, SIMULATIONS, SHOWN = 2, 32, "300x"
#: Gains that differ by less than this part are the same.
SAME = 1e-6
BUDGET, SEEDS = "3s", 3
_ALONE = "descent=false,rounds=1,extraction=greedy-dag"
_GUIDED = f"eqsat:{_ALONE},scheduler=mcts,simulations=100000"
ENTRANTS = {
    "greedy": "greedy",
    "saturation": f"eqsat:{_ALONE}",
    "guided": _GUIDED,
    "guided untrained": f"{_GUIDED},prior={ZERO}",
    "guided by levin": f"{_GUIDED},prior=levin",
    "guided by order": f"{_GUIDED},prior={ORDER}",
}


class Shown(NamedTuple):
    """What is learnt from on one family: the rules that were live there, and those whose e-graph gains most."""

    live: list[str]
    rules: list[str]
    gain: float

    def beats(self, other: Shown | None) -> bool:
        """More gain, or as much in fewer steps."""
        if other is None:
            return True
        low, high = other.gain * (1 - SAME), other.gain * (1 + SAME)
        return self.gain > high or (self.gain >= low and len(self.rules) < len(other.rules))


def shortest(tree: RuleSearch, path: list[int]) -> Shown:
    """As few of these actions as make an e-graph that is worth as much: each is left out that nothing needs."""
    names, gain = [shapes[0].name for shapes in tree.actions], tree.gain_of(path)
    for place in reversed(range(len(path))):
        fewer = path[:place] + path[place + 1 :]
        if tree.gain_of(fewer) >= gain * (1 - SAME):
            path = fewer
    return Shown(names, [names[action] for action in path], gain)


def backtracked(family: str, tree: RuleSearch) -> list[int]:
    """The rules that backtracking applies, in its order, as actions."""
    number = {shapes[0].name: i for i, shapes in enumerate(tree.actions)}
    found = search.solve(Problem(read(family), RULES, priced("cpu", family), SHOWN), "backtracking")
    path = [number[step.rule] for step in found.trace or () if step.rule in number]
    return [action for i, action in enumerate(path) if i == 0 or path[i - 1] != action]


def lesson(family: str, weights: Path, turn: int, best: Shown | None) -> Shown:
    """The best of what is known of a family and of what a search by the weights finds."""
    problem = Problem(read(family), RULES, priced("cpu", family), "100000x", seed=turn)
    strategy: Any = search.make(f"eqsat:{_ALONE},scheduler=mcts,prior={weights}")
    tree = strategy.rule_search(problem, problem.root(), np.random.default_rng(turn))
    if best is None:
        best = shortest(tree, backtracked(family, tree))
        tree.high = 0.0  # the search finds its own
    tree.run(SIMULATIONS)
    found = shortest(tree, list(tree.best_path))
    return found if found.beats(best) else best


def steps(shown: Shown, number: dict[str, int]) -> list[tuple[Candidates, int]]:
    """The steps of one demonstration among all rules that were live, nothing else of which is told."""
    rule = np.array([number[name] for name in shown.live], dtype=np.int32)
    nothing, new = np.zeros(len(rule)), np.zeros(len(rule), dtype=bool)
    taken = [number[name] for name in shown.rules]
    return [
        (Candidates.of(taken[:i], rule, nothing, nothing, nothing, new, new), shown.live.index(name))
        for i, name in enumerate(shown.rules)
    ]


def train(rounds: int) -> None:
    """Writes :data:`ORDER`, and weights of zero beside it."""
    names, begun = tuple(RULES.names), time.process_time()
    config = LevinConfig(families=families_of(names))
    families, count = config.numbered()
    shape = ChainShape(len(names), count)
    number = {name: i for i, name in enumerate(names)}
    best: dict[str, Shown] = {}

    def save(flat: np.ndarray, path: Path) -> None:
        LevinCheckpoint.of(ChainPolicy(shape, families, flat), names, config, card={}).save(path)

    WEIGHTS.mkdir(parents=True, exist_ok=True)
    save(np.zeros(shape.size), ZERO)
    save(by_hand(shape), ORDER)
    for turn in range(rounds):
        for family in LESSONS:
            best[family] = lesson(family, ORDER, turn, best.get(family))
            print(f"round {turn}  {family:<28} gain {best[family].gain:.4f} ms by {len(best[family].rules)} rules  "
                  f"{time.process_time() - begun:.0f} s", file=sys.stderr, flush=True)  # fmt: skip
        every = [step for shown in best.values() for step in steps(shown, number)]
        policy, loss = fitted(ChainPolicy(shape, families, by_hand(shape)), every, config)
        print(f"round {turn}: {len(every)} steps, {loss:.3f} nats each", file=sys.stderr)
        save(policy.flat, ORDER)


def play(options: argparse.Namespace) -> Rows:
    """All searches that the file lacks."""
    if not ORDER.exists():
        raise SystemExit(f"There is no {ORDER}; `python reproduce/learning/rule_order.py train` makes it.")
    command = ["python", "reproduce/learning/rule_order.py", "run"]
    kept = Rows(OUT, command, resume=options.resume, dirty=options.dirty)
    for family in CONFIG["unseen"]:
        for name, spec in ENTRANTS.items():
            for seed in range(SEEDS if name.startswith("guided") else 1):
                key = f"{family}/{name}/{BUDGET}/{seed}"
                if not kept.have(key):
                    row = searched(read(family), spec, priced("cpu", family), BUDGET, seed)
                    about = {"family": family, "name": name, "budget": BUDGET, "seed": seed}
                    kept.add({"kind": "search", "key": key, **about, **row})
    return kept


def lines(rows: list[dict[str, Any]]) -> list[str]:
    """The table: gains in per cent, means over the seeds."""
    gains: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        gains.setdefault((row["name"], row["family"]), []).append(row["gain"])
    families = list(dict.fromkeys(row["family"] for row in rows))
    found = [*results.heading(BUDGET, *(f"`{family}`" for family in families), "mean")]
    for name in dict.fromkeys(row["name"] for row in rows):
        mine = {family: mean(gains[name, family]) for family in families if (name, family) in gains}
        cells = [f"{mine[family]:.2f}" if family in mine else "" for family in families]
        found.append(f"| {name} | {' | '.join(cells)} | {mean(mine.values()):.2f} |")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "run", "tables"))
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of a training")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the file has")
    results.add_options(parser)
    options = parser.parse_args()
    if options.what == "train":
        train(options.rounds)
        return 0
    if options.what == "run":
        kept = play(options)
        print("\n".join([kept.about(), *lines(kept.rows)]))
        return 0
    rows, machines = results.read(OUT)
    print("\n".join([*results.about(rows, machines), *lines([row for row in rows if row["kind"] == "search"])]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
