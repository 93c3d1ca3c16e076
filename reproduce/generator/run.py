"""Runs the generator over its vocabularies and checks what it finds against TASO's shipped rule file.

    python reproduce/generator/run.py generate [--vocabulary taso] [--max-ops 3] [--jobs 2] [--out FOLDER]
    python reproduce/generator/run.py cover RULES.json [--data FOLDER] [--steps 4] [--only 70 81]
    python reproduce/generator/run.py beyond RULES.json [--data FOLDER] [--steps 3]
    python reproduce/generator/run.py ship RULES.json ... [--out FOLDER]

`generate` writes VOCABULARY.json and its statistics, with command, machine and date, into results/.
`cover`: is every rule of TASO's graph_subst.pb (true with equal elementwise shapes, groups = 1 and equal channels)
one of RULES, or derived from them? Each is drawn at two independent shapes, on matrices and images as the
vocabulary has them, and searched for.
`ship`: copies rule files to substitutions/generated/, each rule proved again from other seeds, without what the core
or the imported rules have, and without what the files before it imply in two steps.
`beyond`: which of RULES do neither TASO's rules (in our term language) nor our core library imply?
FOLDER (by default ../shared/data beside the checkout) holds taso_graph_subst.pb.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import machine  # from the folder "common"
import results

from rlflow import _core
from rlflow.errors import RlflowError
from rlflow.rewrite import Rule, read_rules
from rlflow.rewrite.paths import library_files, named_files
from rlflow.synthesis.derive import Derivation, derive
from rlflow.synthesis.importers import ForeignRule, read_foreign
from rlflow.synthesis.importers.convert import convert
from rlflow.synthesis.importers.instances import CHANNELS, draw
from rlflow.synthesis.prove import SAMPLES, prove_or_say
from rlflow.synthesis.rule_files import rule_file_text


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    make = verbs.add_parser("generate")
    make.add_argument("--vocabulary", default="taso")
    make.add_argument("--max-ops", type=int, default=3)
    make.add_argument("--jobs", type=int, default=2)
    make.add_argument("--out", type=Path, default=HERE / "results")
    for name, steps in (("cover", 4), ("beyond", 3)):
        verb = verbs.add_parser(name)
        verb.add_argument("rules", type=Path)
        verb.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
        verb.add_argument("--steps", type=int, default=steps)
        results.add_options(verb)
        if name == "cover":
            verb.add_argument("--only", type=int, nargs="*", help="these rules of TASO's file; writes nothing")
    verb = verbs.add_parser("ship")
    verb.add_argument("rules", type=Path, nargs="+")
    verb.add_argument("--out", type=Path, default=ROOT / "substitutions" / "generated")
    verb.add_argument("--seeds", type=int, nargs="*", default=[11, 12, 13], help="to prove again from")
    options = parser.parse_args()
    return int({"generate": generate, "cover": cover, "beyond": beyond, "ship": ship}[options.verb](options))


def ship(options: argparse.Namespace) -> int:
    """Rule files as they go into the package."""
    had = {rule.name: rule for rule in read_rules([*library_files(), *_imported()])}
    steps, kept = 1, list(had.values())  # of ours only what is the same rule; what two of ours imply is worth a name
    for path in options.rules:
        before = _compiled(kept)
        rules, counts = {rule.name: rule for rule in read_rules([path])}, Counter[str]()
        data = json.loads(path.read_text(encoding="utf-8"))
        entries = []
        for entry in data["rules"]:
            why = _refusal(rules[entry["name"]], options.seeds, had, before, steps)
            counts[why or "shipped"] += 1
            if why.startswith("refuted"):
                sys.stdout.write(f"{rules[entry['name']].title}: {why}\n")
            entries += [] if why else [entry]
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / path.name).write_text(rule_file_text({**data, "rules": entries}), encoding="utf-8")
        steps, kept = 2, [rules[entry["name"]] for entry in entries]
        had.update({rule.name: rule for rule in kept})
        sys.stdout.write(f"{path.name}: {len(rules)} rules: {dict(counts)}\n")
    return 0


def _imported() -> list[Path]:
    return [path for path in named_files() if path.parent.name == "imported"]


def _refusal(rule: Rule, seeds: Sequence[int], had: dict[str, Rule], before: _core.RuleSet, steps: int) -> str:
    """Why a rule is not shipped; empty where it is."""
    if not rule.fires or not rule.silent:
        return "without examples"
    if rule.name in had or any(rule.digest == other.digest for other in had.values()):
        return "known"
    pair = _example(rule)
    if pair is None or derive([pair], before, steps, backwards=False) is not None:
        return "known"
    record = rule.proof
    if record is None or record.shapes < 40 or record.dims[1] < 3 or record.float_samples < 4:
        return "seen at too few shapes"
    if record.growth >= 64 or record.overflow or record.max_rel_err > 1e-10:
        return "loses digits"
    chosen = any("dim(" in c or "attr(" in c for c in rule.where)  # conditions may fit the samples that chose them
    for seed in seeds if chosen else seeds[:1]:
        verdict = prove_or_say(
            rule, samples=SAMPLES if chosen else SAMPLES // 2, seed=seed, check_floats=False, exhaustive=False
        )
        if not verdict.proved:
            return f"{verdict.status} from seed {seed}"
    return ""


def generate(options: argparse.Namespace) -> int:
    """Runs the command, and keeps its statistics."""
    rules, statistics = (
        options.out / f"{options.vocabulary}.json",
        options.out / f"{options.vocabulary}-statistics.json",
    )
    command = [
        *("rlflow", "rules", "generate", "--vocabulary", options.vocabulary, "--max-ops", str(options.max_ops)),
        *("--jobs", str(options.jobs), "--out", os.fspath(rules), "--statistics", os.fspath(statistics)),
    ]
    started = time.perf_counter()
    code = subprocess.run([sys.executable, "-m", *command], check=False).returncode
    if code == 0:
        data = json.loads(statistics.read_text(encoding="utf-8"))
        data = {
            "command": " ".join(command),
            "machine": machine.header(command),
            "wall_s": time.perf_counter() - started,
            **data,
        }
        statistics.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return code


# ---- TASO's file ----------------------------------------------------------------------------------------------------


def cover(options: argparse.Namespace) -> int:
    """A line a rule of TASO's file, and how many are covered."""
    ruleset = _compiled(read_rules([options.rules]))
    rules, rows = read_foreign(options.data / "taso_graph_subst.pb"), []
    for k, rule in enumerate(rules):
        if options.only and k not in options.only:
            continue
        found = _derivation(rule, ruleset, options.steps)
        rows.append(
            {"index": k, "rule": str(rule), "steps": None if found is None else len(found), "chain": str(found)}
        )
        sys.stdout.write(f"{k:4} {'NOT COVERED' if found is None else f'{len(found)} steps'}  {rule}\n")
        sys.stdout.flush()
    covered = sum(row["steps"] is not None for row in rows)
    sys.stdout.write(f"{covered} of {len(rows)} rules covered in at most {options.steps} steps\n")
    if not options.only:
        _write("taso-coverage.jsonl", rows, options.dirty)
    return 0 if covered == len(rows) else 1


def _derivation(rule: ForeignRule, ruleset: _core.RuleSet, steps: int) -> Derivation | None:
    rng, pairs = random.Random(str(rule)), []
    for _ in range(4000):
        instance = draw(rule, rng, CHANNELS)
        if instance is not None and instance.target is not None and _in_vocabulary(instance.source):
            pairs.append((instance.source, instance.target))
            if len(pairs) == 2:
                return derive(pairs, ruleset, steps)
    return None


def _in_vocabulary(graph: _core.Graph) -> bool:
    """Whether all inputs are what the vocabulary has: scalars, matrices, images and kernels. TASO's file, which does
    not say, was found on such."""
    return all(len(graph.shape(v) or ()) in (0, 2, 4) for n in graph.inputs() for v in graph.node_outputs(n))


def beyond(options: argparse.Namespace) -> int:
    """Which rules neither TASO's file nor the core library imply."""
    theirs = []
    for rule in read_foreign(options.data / "taso_graph_subst.pb"):
        try:
            theirs.append(convert(rule, CHANNELS))
        except RlflowError as error:
            sys.stdout.write(f"TASO's rule {rule} is not expressible: {error}\n")
    sets = {"taso": _compiled(theirs), "core": _compiled(read_rules(library_files()))}
    rows = []
    for rule in read_rules([options.rules]):
        pair = _example(rule)
        by = {} if pair is None else {name: derive([pair], s, options.steps) for name, s in sets.items()}
        rows.append(
            {
                "rule": rule.name,
                "title": rule.title,
                "checked": pair is not None,
                **{n: str(d or "") for n, d in by.items()},
            }
        )
        known = [name for name, d in by.items() if d is not None] or (["not checked"] if pair is None else ["new"])
        sys.stdout.write(f"{', '.join(known):12} {rule.title}\n")
        sys.stdout.flush()
    for name in sets:
        count = sum(row["checked"] and not row[name] for row in rows)
        sys.stdout.write(f"{count} of {len(rows)} rules are not implied by {name} in at most {options.steps} steps\n")
    both = sum(row["checked"] and not row["taso"] and not row["core"] for row in rows)
    sys.stdout.write(f"{both} are implied by neither\n")
    _write(f"{options.rules.stem}-beyond.jsonl", rows, options.dirty)
    return 0


def _compiled(rules: Iterable[Rule]) -> _core.RuleSet:
    return _core.RuleSet([rule.core for rule in rules])


def _example(rule: Rule) -> tuple[_core.Graph, _core.Graph] | None:
    """The rule's own example, before and after."""
    for text in rule.fires:
        graph = _core.Graph.parse(text)
        state = _core.State(graph, _core.RuleSet([rule.core]))
        if len(state.moves()):
            return graph, state.child(0)
    return None


def _write(name: str, rows: list[dict[str, Any]], dirty: bool) -> None:
    results.Results(HERE / "results" / name, sys.argv, dirty=dirty).extend(rows)


if __name__ == "__main__":
    raise SystemExit(main())
