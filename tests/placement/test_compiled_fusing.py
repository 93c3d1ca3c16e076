"""Fusion by kernels that TorchInductor really compiles: groups, the table of their times, and whole callables."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; pip install 'rlflow[rl]'")

from rlflow.errors import CostError, ModelError, RuntimeRefused, RuntimeUnavailable, UsageError  # noqa: E402
from rlflow.placement import Devices, compiled_fusing  # noqa: E402
from rlflow.placement.compiled_fusing import CompiledFusingTask, times_beside  # noqa: E402
from rlflow.placement.decisions import GraphView  # noqa: E402
from rlflow.placement.level_search import AnnealedLevels  # noqa: E402
from rlflow.placement.rules_of_thumb import by_rule  # noqa: E402

EXAMPLE = (torch.rand(48, 64, generator=torch.Generator().manual_seed(0)) + 0.1,)


class Scaled(torch.nn.Module):
    """Four nodes that read each other, and one whose shape forbids to join it; a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.linspace(0.5, 1.5, 64))

    def forward(self, x: Any) -> Any:
        share = x * self.scale / x.sum(-1, keepdim=True)
        most = share.amax(-1, keepdim=True)
        return {"scaled": x - most, "columns": (share - most).sum(0)}


def chain(x: Any) -> Any:
    """A sum, the largest of what it divides, and a product with that: each node reads the one before."""
    return x * (x / x.sum(-1, keepdim=True)).amax(-1, keepdim=True)


def twice_alike(x: Any, y: Any) -> Any:
    """The chain for two tensors of one shape, and for a part of one."""
    return chain(x), chain(y), chain(x[:10])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where kernels are kept: what g++ reads first is prepared once."""
    return os.fspath(tmp_path_factory.mktemp("inductor"))


@pytest.fixture(scope="module")
def task(folder: str) -> Iterator[CompiledFusingTask]:
    with CompiledFusingTask(Scaled(), EXAMPLE, runs=2, folder=folder) as made:
        yield made


def drawn(task: CompiledFusingTask, rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, task.choices, (rows, task.nodes))


# --- groups -----------------------------------------------------------------------------------------------------------


def test_level_zero_is_a_kernel_a_node_and_equal_levels_are_what_inductor_does(task: CompiledFusingTask) -> None:
    n = task.nodes
    assert n >= 4
    assert task.groups(np.zeros(n, int)).tolist() == list(range(n))
    for level in (1, 7):
        assert task.groups(np.full(n, level)).tolist() == task.groups(None).tolist()
    assert len(task.plan(None)) < n
    assert task.compiled == 0, "groups take no compilation"


def test_groups_partition_the_nodes(task: CompiledFusingTask) -> None:
    for row in drawn(task, 30):
        plan = task.plan(row)
        assert sorted(node for group in plan for node in group.nodes) == list(range(task.nodes))
        assert all(group.nodes == tuple(sorted(group.nodes)) and group.signature for group in plan)
        assert all(
            task.groups(row)[list(group.nodes)].tolist() == [group.nodes[0]] * len(group.nodes) for group in plan
        )


@pytest.mark.parametrize(
    ("levels", "groups"),
    [([0, 0, 0], [0, 1, 2]), ([0, 1, 1], [0, 1, 1]), ([1, 0, 7], [0, 0, 2]), ([3, 1, 0], [0, 0, 0])],
)
def test_a_node_of_level_zero_is_not_joined_to_its_reader(folder: str, levels: list[int], groups: list[int]) -> None:
    task = CompiledFusingTask(chain, EXAMPLE, folder=folder)
    assert task.sketch.inputs == ((), (0,), (1,))
    assert task.groups(np.array(levels)).tolist() == groups


def test_equal_groups_share_an_entry(folder: str) -> None:
    task = CompiledFusingTask(twice_alike, EXAMPLE * 2, folder=folder)
    signatures: dict[str, list[int]] = {}
    for group in task.plan(np.zeros(task.nodes, int)):
        signatures.setdefault(group.signature, []).append(group.nodes[0])
    assert sorted(map(len, signatures.values())) == [1, 1, 1, 2, 2, 2]
    sizes = [{float(task.sketch.sizes[node]) for node in nodes} for nodes in signatures.values()]
    assert all(len(one) == 1 for one in sizes), "other shapes have other entries"


# --- the table, and wholes --------------------------------------------------------------------------------------------


def test_each_group_is_compiled_once(task: CompiledFusingTask, monkeypatch: pytest.MonkeyPatch) -> None:
    none, ones = np.zeros(task.nodes, int), np.ones(task.nodes, int)
    value = task.evaluate(none)
    assert (value.valid, value.evidence) == (True, "measured")
    assert task.compiled == len(task.table) == len({group.signature for group in task.plan(none)})
    assert task.unknown(none) == []
    task.evaluate(ones)
    assert task.rest is not None and task.rest >= 0
    compiled, spent = task.compiled, task.spent
    monkeypatch.setattr(task._graph, "compiled", lambda *given, **how: pytest.fail("it was compiled again"))
    again, other = task.scores(np.stack([none, ones]))
    assert again == value.objective == pytest.approx(task.rest + sum(task.table[g.signature] for g in task.plan(none)))
    assert other == pytest.approx(task.rest + sum(task.table[g.signature] for g in task.plan(ones)))
    assert (task.compiled, task.spent) == (compiled, spent + 2)


def test_a_table_goes_from_one_task_to_the_next(task: CompiledFusingTask, folder: str) -> None:
    ones = np.ones(task.nodes, int)
    task.evaluate(ones)
    other = CompiledFusingTask(Scaled(), EXAMPLE, folder=folder, runs=1, table=dict(task.table))
    assert other.unknown(ones) == []
    assert other.evaluate(ones).objective > 0 and other.compiled == 0


@pytest.mark.parametrize("apart", [False, True])
def test_every_whole_computes_what_eager_torch_does(task: CompiledFusingTask, apart: bool) -> None:
    module = Scaled()
    rows: list[Any] = [None, np.zeros(task.nodes, int), *drawn(task, 2, seed=3)]
    wholes = [task.whole(row, apart=apart) for row in rows]
    others = (torch.rand(48, 64) + 0.5,)
    for row, whole in zip(rows, wholes, strict=True):
        assert whole.groups.tolist() == task.groups(row).tolist(), "what is compiled is what was planned"
        for inputs in (EXAMPLE, others):
            found, expected = whole(*inputs), module(*inputs)
            assert list(found) == list(expected)
            assert all(torch.allclose(found[name], expected[name], atol=1e-5) for name in expected)
    times = times_beside(wholes, 3)
    assert times.shape == (3, len(wholes)) and (times > 0).all()


def test_searches_and_the_policy_decide_about_it(task: CompiledFusingTask) -> None:
    from rlflow.agents.go.deciding import best_of, policy_of
    from rlflow.agents.go.lessons import lesson_of

    ones = task.evaluate(np.ones(task.nodes, int)).objective
    assert by_rule(task).tolist() == [[1] * task.nodes]
    score, row = AnnealedLevels(4).decide(task, np.random.default_rng(0))
    assert score == task.evaluate(row).objective <= ones
    view = GraphView.of(task.sketch.work(), Devices.alike(2), task.sketch.products)
    lesson = lesson_of("compiled", view, [None, None, task], rules=1, rewarded=False)
    before = task.spent
    score, row = best_of(policy_of("untrained"), lesson, 3, np.random.default_rng(0))[2]
    assert task.spent - before == 2  # the one by rule was tried where the lesson was made
    assert score == task.evaluate(row).objective <= ones


# --- what is left as it was, and what is refused ----------------------------------------------------------------------


def state() -> tuple[Any, ...]:
    from torch._functorch import config as functorch
    from torch._inductor import config
    from torch._inductor.codegen.cpp import CppScheduling
    from torch._inductor.virtualized import V

    return (
        os.environ.get("TORCHINDUCTOR_CACHE_DIR"), config.save_config_portable(), functorch.enable_autograd_cache,
        type(V.choices._get_handler()) if hasattr(V.choices, "_get_handler") else type(V.choices),
        CppScheduling.MAX_FUSED_KERNEL_ARGS_NUM, torch.get_num_threads(), torch.is_grad_enabled(),
    )  # fmt: skip


def test_torch_is_configured_as_before(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state()
    task = CompiledFusingTask(chain, EXAMPLE, folder=folder, runs=1)
    task.evaluate(np.zeros(3, int))
    task.whole(np.ones(3, int))(*EXAMPLE)
    assert state() == before

    def broken(*given: Any, **how: Any) -> Any:
        raise RuntimeError("no such instruction\nsecond line")

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx_inner", broken)
    with pytest.raises(RuntimeRefused, match=r"cannot compile these groups: no such instruction$"):
        task.evaluate(np.array([1, 0, 0]))
    assert state() == before


def test_kernels_that_are_not_those_of_the_groups_have_no_times(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = CompiledFusingTask(chain, EXAMPLE, folder=folder, runs=1)
    monkeypatch.setattr(compiled_fusing, "_kernel_seconds", lambda *given: np.ones((1, 2)))
    with pytest.raises(CostError, match="ran 1 kernels for 3 groups"):
        task.evaluate(np.zeros(3, int))


def test_the_folder_of_ours_is_removed() -> None:
    with CompiledFusingTask(chain, EXAMPLE) as task:
        place = Path(task._graph.folder)
        task.groups(np.ones(3, int))
        assert place.is_dir()
    assert not place.exists()


@pytest.mark.parametrize(
    ("levels", "says"),
    [([0, 1], "whole numbers"), ([0, 1, 8], "0 to 7"), ([0, -1, 0], "got -1"), ([0.0] * 3, "float")],
)
def test_bad_levels_are_refused(folder: str, levels: list, says: str) -> None:
    task = CompiledFusingTask(chain, EXAMPLE, folder=folder)
    for method in (task.evaluate, task.groups, task.whole, lambda one: task.scores(np.array([one]))):
        with pytest.raises(UsageError, match=says):
            method(np.array(levels))


def data_dependent(x: Any) -> Any:
    return x + 1 if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("function", "example", "options", "error", "says"),
    [
        (chain, EXAMPLE, {"levels": 1}, UsageError, "at least 2 levels"),
        (chain, EXAMPLE, {"runs": 0}, UsageError, "1 run; got 8 and 0"),
        (chain, (), {}, UsageError, "at least one tensor on the processor; got nothing"),
        (chain, (3,), {}, UsageError, "got int"),
        ("chain", EXAMPLE, {}, UsageError, "str is neither"),
        (lambda x: x, EXAMPLE, {}, UsageError, "computes? nothing|nothing to compile"),
        (data_dependent, EXAMPLE, {}, ModelError, "torch.export cannot export data_dependent"),
    ],
)
def test_what_cannot_be_fused_is_refused(
    folder: str, function: Any, example: Any, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        CompiledFusingTask(function, example, folder=folder, **options)


def test_without_torch_or_a_compiler_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config
    from torch._inductor.choices import InductorChoices

    absent = pytest.raises(RuntimeUnavailable, match="'no-such-compiler' was not found: install one")
    with config.patch({"cpp.cxx": (None, "no-such-compiler")}), absent as found:
        CompiledFusingTask(chain, EXAMPLE)
    assert str(found.value).count("\n") == 0
    with monkeypatch.context() as patched:
        patched.delattr(InductorChoices, "score_fusion")
        with pytest.raises(RuntimeUnavailable, match="which this PyTorch lacks"):
            CompiledFusingTask(chain, EXAMPLE)
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else real(name, *rest))
    with pytest.raises(RuntimeUnavailable, match=r"PyTorch is not installed: pip install 'rlflow\[rl\]'\.$"):
        CompiledFusingTask(chain, EXAMPLE)
