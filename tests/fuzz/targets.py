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
import onnx
import operators
from onnx import TensorProto, helper, numpy_helper

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


# -- models


def _value(name: str, shape: list[Any], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], tensors: dict[str, Any], **more: Any) -> bytes:
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in tensors.items()]
    graph = helper.make_graph(nodes, "main", inputs, outputs, weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, **more).SerializeToString()


def _models() -> list[bytes]:
    random = np.random.default_rng(0)
    w = {name: random.standard_normal((4, 4)).astype(np.float32) for name in ("w", "v")}
    node, x, y = helper.make_node, _value("x", ["N", 4]), _value("y", ["N", 4])
    plain = [
        node("MatMul", ["x", "w"], ["a"], name="m"),
        node("Gemm", ["a", "v", "b"], ["c"], alpha=0.5),
        node("Shape", ["c"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "zero1"], ["n1"]),
        node("Concat", ["n1", "four"], ["to"], axis=0),
        node("Reshape", ["c", "to"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[1, 0]),
        node("Transpose", ["t"], ["u"], perm=[1, 0]),
        node("Clip", ["u", "", "six"], ["y"]),
    ]
    constants = {
        **w, "b": np.ones(4, np.float32), "zero": np.int64(0), "zero1": np.array([0]), "four": np.array([4]),
        "six": np.float32(6),
    }  # fmt: skip
    body = helper.make_graph([node("MatMul", ["x", "w"], ["p"])], "body", [], [_value("p", ["N", 4])])
    other = helper.make_graph(
        [node("Constant", [], ["q"], value_floats=[1.0, 2.0, 3.0, 4.0])], "o", [], [_value("q", [4])]
    )
    branches = [node("If", ["flag"], ["y"], then_branch=body, else_branch=other)]
    image = [
        node("Conv", ["i", "k"], ["a"], pads=[1, 1, 1, 1], strides=[1, 2]),
        node("BatchNormalization", ["a", "g", "g", "g", "g"], ["c"]),
        node("Relu", ["c"], ["d"]),
        node("Split", ["d", "parts"], ["e", "f"], axis=1),
        node("MaxPool", ["e"], ["h"], kernel_shape=[2, 2]),
        node("Resize", ["f", "", "scales"], ["r"]),
        node("Slice", ["r", "starts", "ends", "axes"], ["y"]),
    ]
    kernel = {
        "k": random.standard_normal((4, 3, 3, 3)).astype(np.float32), "g": np.ones(4, np.float32),
        "parts": np.array([2, 2]), "scales": np.array([1, 1, 2, 2], np.float32), "starts": np.array([0]),
        "ends": np.array([2]), "axes": np.array([2]),
    }  # fmt: skip
    called = helper.make_function("own", "F", ["a"], ["b"], [node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)])
    fills = [
        node("ConstantOfShape", ["big"], ["z"]),
        node("Concat", ["z", "z"], ["l"], axis=0),
        node("Expand", ["x", "to"], ["y"]),
    ]
    return [
        _model(plain, [x], [y], constants),
        _model(branches, [x, _value("flag", [], TensorProto.BOOL)], [_value("y", [])], w),
        _model(image, [_value("i", [1, 3, 8, 8])], [_value("y", [1, 2, 2, 8]), _value("h", [])], kernel),
        _model([node("F", ["x"], ["y"], domain="own")], [x], [y], {}, functions=[called]),
        _model(fills, [x], [_value("l", []), y], {"big": np.array([9, 9]), "to": np.array([1, 4])}),
    ]


def _changed_model(data: bytes, random: Random) -> bytes:
    """A model with fields of its messages removed, repeated, exchanged or set to odd values."""
    model = onnx.ModelProto()
    model.ParseFromString(data)
    messages = list(_messages(model))
    for _ in range(random.choice((1, 1, 2, 4))):
        _change(random.choice(messages), random)
    return model.SerializeToString()


def _messages(message: Any) -> Any:
    yield message
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for inner in value if hasattr(value, "add") else [value]:
                yield from _messages(inner)


_NUMBERS = (0, 1, -1, 2, 7, 99, 1 << 31, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63), 1 << 40)
_TEXTS = ("", "x", "y", "w", "N", "if", "Loop", "Relu", "Constant", "axis", "a" * 3000, "../x", "ü", "'", "N*M", "own")


def _change(message: Any, random: Random) -> None:
    fields = list(message.DESCRIPTOR.fields)
    field = random.choice([one for one, _ in message.ListFields()] or fields)
    value = getattr(message, field.name)
    if hasattr(value, "__len__") and hasattr(value, "extend") and len(value):
        kind = random.randrange(4)
        if kind == 0:
            del value[random.randrange(len(value))]
        elif kind == 1:
            value.extend([value[random.randrange(len(value))]])
        elif kind == 2:
            copied = [value[random.randrange(len(value))] for _ in value]
            del value[:]
            value.extend(copied)
        elif field.message_type is None:
            value[random.randrange(len(value))] = _scalar(field, random)
    elif field.message_type is not None or random.random() < 0.2:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _scalar(field, random))


def _scalar(field: Any, random: Random) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        text = random.choice(_TEXTS)
        return text.encode() if field.type == field.TYPE_BYTES else text
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return random.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    if field.cpp_type == field.CPPTYPE_ENUM:
        return random.choice([one.number for one in field.enum_type.values])
    number = random.choice(_NUMBERS)
    if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32):
        return number % (1 << 31)
    return number if field.cpp_type == field.CPPTYPE_INT64 else abs(number)


def _read_model(data: bytes, _: Any) -> None:
    from rlflow.frontends import load_model, save_model

    imported = load_model(data)
    misread = [note for note in imported.notes if "are not those of its operator" in note]
    assert not misread or _onnx_objects(imported.origin.model), misread[0]
    save_model(imported, imported.graph)


def _onnx_objects(model: onnx.ModelProto) -> bool:
    """Whether onnx's checker or its strict inference finds fault with a node. If not, a node that was not understood is
    sound, and the reader is at fault. Inference that follows wrong numbers ends the process, so it has one of its own.
    """
    from rlflow import forks

    def judge() -> bytes:
        context = onnx.checker.C.CheckerContext()
        context.ir_version = model.ir_version
        context.opset_imports = {one.domain: one.version for one in model.opset_import}
        for node in model.graph.node:
            onnx.checker.check_node(node, context)
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        return b""

    try:
        forks.apart(judge)
    except forks.Failed:
        return True
    return False


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
        Target("models", _models, _read_model, structured=_changed_model, patterns=("*.onnx",)),
        Target("operators", operators.seeds, _read_model, structured=operators.one_operator),
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
