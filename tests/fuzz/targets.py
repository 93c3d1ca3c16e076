"""What is fuzzed: for each reader its seeds, made here, and how an input is read."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import operators
import whole_models

_SHIPPED = Path(__file__).parents[2] / "substitutions"
_MOST_SEEDS, _LARGEST_SEED = 12, 200_000


@dataclass(frozen=True)
class Target:
    """``read`` gets an input and what ``warm`` made (imports done, folders there); ``structured`` changes a seed in its
    own terms; ``pattern`` finds more seeds in a folder.
    """

    name: str
    seeds: Callable[[], list[bytes]]
    read: Callable[[bytes, Any], Any]
    warm: Callable[[], Any] = lambda: None
    structured: Callable[[bytes, Random], bytes] | None = None
    patterns: tuple[str, ...] = ()
    needs: str | None = None

    def missing(self) -> str | None:
        """Why it cannot run here, or None."""
        absent = self.needs is not None and importlib.util.find_spec(self.needs) is None
        return f"{self.needs} is not installed" if absent else None

    def outside(self, folder: Path) -> list[bytes]:
        """Small files of a folder that look like seeds."""
        files = sorted({path for pattern in self.patterns for path in folder.rglob(pattern)})
        small = [path for path in files if path.is_file() and path.stat().st_size <= _LARGEST_SEED]
        step = max(1, len(small) // _MOST_SEEDS)
        return [path.read_bytes() for path in small[::step][:_MOST_SEEDS]]


# -- rules and their ancestors


def _rule_files() -> list[bytes]:
    rule = {
        "name": "r",
        "source": ["(Transpose{perm=?p} (Transpose{perm=?q} ?x))"],
        "target": ["(Transpose{perm=compose(?q, ?p)} ?x)"],
    }
    merged = {
        "name": "m", "source": ["(MatMul ?x ?a)", "(MatMul ?x ?b)"], "where": ["rank(?a) == 2", "not (rank(?b) != 2)"],
        "target": ["?s:0", "?s:1"], "let": {"?s": "(Split{axis=-1, split=[1, 2]} (MatMul ?x (Concat{axis=-1} ?a ?b)))"},
        "samples": [{"shapes": [[2, 3]]}], "fires": ["x: f32[2] = input\nreturn x"], "numerics": "exact",
    }  # fmt: skip
    files = [{"format": 1, "family": "f", "rules": rules} for rules in ([rule], [merged], [rule, merged], [])]
    for path in sorted(_SHIPPED.glob("core/*.json")):  # of each family one rule
        shipped = json.loads(path.read_text(encoding="utf-8"))
        files.append({**shipped, "rules": shipped["rules"][:1]})
    return [json.dumps(one).encode() for one in files]


def _changed_json(data: bytes, random: Random) -> bytes:
    """A JSON text with values exchanged, deepened, repeated or replaced, anywhere in it."""
    root = [json.loads(data)]
    holders: list[Any] = [root]
    for holder in holders:
        values = holder.values() if isinstance(holder, dict) else holder
        holders.extend(value for value in values if isinstance(value, (dict, list)))
    holder = random.choice([one for one in holders if one])
    key = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    value = holder[key]
    texts = ("(" * 500, "not " * 500, "?x", "(Relu " * 300, "1" * 5000, "\ud800", "ü", "", "(_)", "?x:999999999999")
    choices: list[Any] = [
        None,
        True,
        -1,
        1.5,
        10**30,
        1e308,
        "",
        [],
        {},
        [value, value],
        {"x": value},
        random.choice(texts),
    ]
    if isinstance(value, str) and value:
        at = random.randrange(len(value))
        choices += [value[:at] + random.choice(texts) + value[at:], value[:at], value[at:], value * 20] * 2
    holder[key] = random.choice(choices)
    return json.dumps(root[0]).encode()


def _folder() -> str:
    return tempfile.mkdtemp(prefix="fuzz-")


def _file(folder: Any, name: str, data: bytes) -> str:
    path = os.path.join(folder, name)
    Path(path).write_bytes(data)
    return path


def _read_rules(data: bytes, folder: Any) -> None:
    from rlflow.rewrite import read_rules

    for rule in read_rules([_file(folder, "r.json", data)]):
        rule.core  # noqa: B018 - compiles it


def _read_graph(data: bytes, _: Any) -> None:
    from rlflow.graph import Graph

    Graph.parse(data.decode("utf-8", "replace"))


def _graphs() -> list[bytes]:
    from rlflow.testing import random_graph

    return [random_graph(seed, 12).text().encode() for seed in range(6)]


def _taso_files() -> list[bytes]:
    def field(number: int, value: int | bytes) -> bytes:
        if isinstance(value, bytes):
            return bytes([number << 3 | 2, len(value)]) + value
        return bytes([number << 3, value & 0x7F])

    tensor, weight = field(1, 0x7F) + field(2, 0), field(1, 0x7E) + field(2, 0)
    parameter = field(1, 4) + field(2, 1)
    relu, matmul = (
        field(1, 8) + field(2, tensor),
        field(1, 5) + field(2, tensor) + field(2, weight) + field(3, parameter),
    )
    output = field(1, 0) + field(2, 0) + field(3, 0) + field(4, 0)
    return [
        field(1, field(1, source) + field(2, target) + field(3, output))
        for source, target in ((relu, relu), (matmul, matmul), (relu, matmul))
    ] + [field(1, field(1, relu)), b""]


def _read_foreign(name: str) -> Callable[[bytes, Any], None]:
    def read(data: bytes, folder: Any) -> None:
        from rlflow.synthesis.importers import read_foreign

        read_foreign(_file(folder, name, data))

    return read


def _tensat_files() -> list[bytes]:
    lines = [
        "(ewadd ?input_1 (ewadd ?input_2 ?input_3))=>(ewadd (ewadd ?input_1 ?input_2) ?input_3)",
        "(matmul 0 ?input_1 (matmul 0 ?input_2 ?input_3))=>(matmul 0 (matmul 0 ?input_1 ?input_2) ?input_3)",
        "(conv2d 1 1 0 0 ?input_1 ?input_2)=>(conv2d 1 1 0 0 ?input_1 ?input_2)",
        "(transpose (transpose ?input_1 1_0 1) 1_0 1)=>?input_1",
    ]
    return ["\n".join(lines).encode(), *(line.encode() for line in lines)]


# -- what is kept


def _searches() -> list[bytes]:
    """Checkpoints of real searches, of strategies that keep different things; then what never was one."""
    from rlflow import search
    from rlflow.search import resume
    from rlflow.testing import TOYS

    toy = next(one for one in TOYS if one.name == "mixture")
    seeds = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.json")
        for strategy in ("greedy", "backtracking", "genetic", "mcts"):
            resume.solve_resumably(toy.problem("3x"), search.make(strategy), path, rng=search.generator)
            seeds.append(path.read_bytes())
    values = [seed.partition(b"\n")[2] for seed in seeds]  # without a header: it is written anew for each mutant
    return [seeds[0], *values, *(json.dumps(one).encode() for one in (7, [], {}))]


def _read_search(data: bytes, folder: Any) -> None:
    from rlflow.ledger import sealed
    from rlflow.search.resume import CHECKPOINT, SavedSearch

    whole = data if data.startswith(b'{"kind"') else sealed(CHECKPOINT, data.decode("utf-8", "replace")).encode()
    SavedSearch.read(_file(folder, "s.json", whole))


def _agents() -> list[bytes]:
    """A policy as training writes it, in two forms, and the smallest archives that are none."""
    from rlflow.agents.torch_state import weights_of
    from rlflow.agents.xrlflow.config import TrainConfig
    from rlflow.agents.xrlflow.trained import PolicyCheckpoint
    from rlflow.nn.policy import make_policy
    from rlflow.nn.policy_config import PolicyConfig
    from rlflow.nn.token_vocabulary import TokenVocabulary

    words = TokenVocabulary(("Relu", "MatMul"), ("relu-twice",))
    seeds = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.npz")
        for form in (PolicyConfig(hidden=4, layers=1, heads=2), PolicyConfig("meta-graph", "mean", 4, 1, 1, prior=2.0)):
            weights = weights_of(make_policy(form, words, 0))
            card = {"models": ["toy"], "steps": 10}
            PolicyCheckpoint(TrainConfig(policy=form), words, weights, {}, {"updates": 1}, card).save(path)
            seeds.append(path.read_bytes())
    return [*seeds, _archive({"meta.json": b"7"}), _archive({"meta.json": b"{}", "a.npy": _array(np.array(["x"]))})]


def _archive(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in members.items():
            out.writestr(name, data)
    return stream.getvalue()


def _array(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=array.dtype.hasobject)
    return stream.getvalue()


def _changed_agent(data: bytes, random: Random) -> bytes:
    """A sound archive with another description, or an array of another form, kind or content; or one member's bytes
    changed.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        members = {name: source.read(name) for name in source.namelist()}
    name = random.choice(["meta.json", "meta.json", *members])
    if name == "meta.json":
        members[name] = _changed_json(members[name], random)
    elif random.random() < 0.2:
        del members[name]
    else:
        array = np.load(io.BytesIO(members[name]))
        odd = (array.T, array[..., :1], array.astype(str), array.astype(object), array * np.nan, array[None], array * 0)
        members[name] = _array(random.choice(odd))
    return _archive(members)


def _read_agent(data: bytes, folder: Any) -> None:
    from rlflow.agents.xrlflow.trained import PolicyCheckpoint

    PolicyCheckpoint.load(_file(folder, "a.npz", data)).policy()


def _agent_folder() -> str:
    import rlflow.agents.xrlflow.trained  # noqa: F401 - opens torch before memory is limited

    return _folder()


def _price_lines() -> list[bytes]:
    from rlflow.price.database import Price, PriceContext, PriceDatabase

    lines: list[str] = []
    with PriceDatabase(":memory:") as database:
        where = PriceContext("cpu", "onnxruntime", "1.2")
        database.put_many({"a": Price(1.0, 0.1, 9), "b": Price(None, refusal="no"), "c": Price(2.5)}, where)
        database.export_to(lines.append)
    return ["".join(lines).encode(), lines[0].encode(), "".join(lines[:2]).encode()]


def _read_price_lines(data: bytes, _: Any) -> None:
    from rlflow.price.database import PriceDatabase

    with PriceDatabase(":memory:") as database:
        database.import_from(data.decode("utf-8", "replace").splitlines(), "fuzz")


def _price_files() -> list[bytes]:
    from rlflow.price.database import Price, PriceContext, PriceDatabase

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "p.sqlite")
        with PriceDatabase(path) as database:
            prices = {f"signature {k}": Price(k + 0.5, 0.1, 9, kind="conv", operators="Conv Relu") for k in range(40)}
            database.put_many(prices, PriceContext("cpu", "onnxruntime", "1.2"))
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode = DELETE")
        return [Path(path).read_bytes()]


def _changed_prices(data: bytes, random: Random) -> bytes:
    """Values of other kinds in a sound file."""
    with tempfile.TemporaryDirectory() as folder:
        path = _file(folder, "p.sqlite", data)
        connection = sqlite3.connect(path)
        columns = [row[1] for row in connection.execute("PRAGMA table_info(prices)")]
        odd = random.choice(("abc", -5, 1e308, float("inf"), b"\xff\xfe", "", None, 1 << 62))
        connection.execute(
            f"UPDATE OR IGNORE prices SET {random.choice(columns)} = ? WHERE rowid % ? = 0",
            (odd, random.choice((1, 3))),
        )
        if random.random() < 0.3:
            connection.execute("UPDATE OR IGNORE prices SET kind = CAST(x'fffe' AS TEXT)")
        connection.commit()
        connection.close()
        return Path(path).read_bytes()


def _read_price_file(data: bytes, folder: Any) -> None:
    from rlflow.price.database import Price, PriceContext, PriceDatabase

    for old in os.listdir(folder):
        os.unlink(os.path.join(folder, old))
    where = PriceContext("cpu", "onnxruntime", "1.2")
    with PriceDatabase(_file(folder, "p.sqlite", data)) as database:
        for price in (
            *database.get_many([f"signature {k}" for k in range(40)], where).values(),
            *database.all_here(where).values(),
        ):
            assert price.ms is None or price.ms >= 0, f"a price of {price.ms} was believed"
        database.contexts()
        database.export_to(lambda line: None)
        database.put_many({"signature 1": Price(2.0)}, where)
        database.count()


TARGETS = {
    target.name: target
    for target in (
        Target("models", whole_models.seeds, whole_models.read, structured=whole_models.changed, patterns=("*.onnx",)),
        Target("operators", operators.seeds, whole_models.read, structured=operators.one_operator),
        Target("rules", _rule_files, _read_rules, _folder, _changed_json),
        Target("graphs", _graphs, _read_graph),
        Target("taso", _taso_files, _read_foreign("t.pb"), _folder, patterns=("*.pb",)),
        Target("tensat", _tensat_files, _read_foreign("t.txt"), _folder, patterns=("*rules*.txt", "*.rules")),
        Target("searches", _searches, _read_search, _folder, _changed_json),
        Target("agents", _agents, _read_agent, _agent_folder, _changed_agent, patterns=("*.npz",), needs="torch"),
        Target("price-lines", _price_lines, _read_price_lines),
        Target("price-files", _price_files, _read_price_file, _folder, _changed_prices),
    )
}
