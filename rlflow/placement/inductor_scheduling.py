"""A torch callable as TorchInductor schedules it: its nodes before fusion, the groups that levels make of them, and the
kernels that it compiles for these.

Inductor lowers the callable once. After that its scheduler fuses anew for other levels without writing any code: that
takes milliseconds. All of it runs on one thread, and in a folder of its own for what is compiled; torch's own
configuration is as before when a call returns.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlflow.errors import ModelError, RuntimeRefused, RuntimeUnavailable, UsageError
from rlflow.nn.threads import one_thread
from rlflow.placement.sketches import NetworkSketch
from rlflow.registry import not_installed

__all__ = ["InductorGraph", "NodeGroup", "forget_compiled", "inductor_unavailable"]

_FOLDER = "TORCHINDUCTOR_CACHE_DIR"
#: Of a loop's body, what is no arithmetic.
_MOVES = frozenset({"load", "store", "store_reduction", "get_index", "index_expr", "constant", "to_dtype", "output"})


class NodeGroup(NamedTuple):
    """Nodes that one kernel computes: their numbers, ascending, and the ``signature`` of what it does: equal for equal
    loops over equal shapes and types; empty for what Inductor calls and does not compile.
    """

    nodes: tuple[int, ...]
    signature: str


class _Fused(BaseException):
    """Ends a compilation after fusion; no ``except Exception`` of torch's stops it."""


def inductor_unavailable() -> str | None:
    """Why nothing can be compiled here, as a sentence, or ``None``: PyTorch is absent or too old, or there is no
    compiler for C++.
    """
    missing = not_installed("PyTorch", "torch", "[rl]")
    if missing is not None:
        return f"{missing}."
    try:
        from torch._inductor import config, cpp_builder, exc
        from torch._inductor.choices import InductorChoices
    except ImportError:
        return "Fusion by levels needs the hooks of TorchInductor's choices, which this PyTorch lacks: install 2.13."
    if not hasattr(InductorChoices, "score_fusion"):
        return "Fusion by levels needs the hooks of TorchInductor's choices, which this PyTorch lacks: install 2.13."
    try:
        cpp_builder.get_cpp_compiler()
    except (exc.InvalidCxxCompiler, RuntimeError):
        asked = config.cpp.cxx[-1] if isinstance(config.cpp.cxx, tuple) else config.cpp.cxx
        return (
            f"TorchInductor needs a C++ compiler, and {asked!r} was not found: install one (Debian or Ubuntu: apt-get "
            "install g++), or name it in the variable CXX."
        )
    return None


def forget_compiled() -> None:
    """Make torch forget where it keeps what it compiled, before the folder is removed: it looks there again otherwise.
    What the caller compiled is read again from the caller's own folder when it is needed.
    """
    try:
        from torch._inductor import codecache
        from torch._inductor.utils import clear_caches
    except ImportError:
        return
    clear_caches()
    codecache._precompile_header.cache_clear()


class InductorGraph:
    """``function``: a ``torch.nn.Module`` or a function of tensors; ``example``: tensors on the processor, of the only
    shapes that it is compiled for; ``folder``: where what is compiled is kept.

    ``names``: of Inductor's nodes before fusion, in an order in which they can run; ``sketch``: these as a
    :class:`NetworkSketch`, with operations, bytes and edges. Raises :class:`RuntimeUnavailable` where
    :func:`inductor_unavailable` says why, :class:`UsageError` for what cannot be called or compiled so, and
    :class:`ModelError` where torch cannot export it.
    """

    def __init__(self, function: Any, example: Sequence[Any], folder: str) -> None:
        missing = inductor_unavailable()
        if missing is not None:
            raise RuntimeUnavailable(missing)
        self.folder = folder
        self._example = _checked_example(function, example)
        self._core: Callable[[list[Any]], Any] = _no_core
        with self._alone():
            self._inner, self._outer = self._captured(function)
            #: What the compiled core is called with: the example, and the weights of a module.
            self.arguments = self._flat_arguments()
            self._graph, nodes = self._lowered()
        self.names = tuple(node.get_name() for node in nodes)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        made = {buffer: node.get_name() for node in nodes for buffer in node.get_buffer_names()}
        self._reads = {node.get_name(): frozenset(dep.name for dep in node.read_writes.reads) for node in nodes}
        self._makers = {name: frozenset(made[one] for one in ones if one in made) for name, ones in self._reads.items()}
        self.sketch = _sketch(nodes, self._graph, self._makers, made)

    # --- fusion -------------------------------------------------------------------------------------------------------

    def fused(self, levels: Sequence[int] | None) -> tuple[NodeGroup, ...]:
        """The groups for levels [n], or Inductor's own for ``None``; no code is written."""
        from torch._inductor.debug import DebugContext
        from torch._inductor.scheduler import Scheduler
        from torch._inductor.virtualized import V

        seen: list[tuple[NodeGroup, ...]] = []

        def stop(nodes: list[Any]) -> list[Any]:
            seen.append(tuple(self._group(node, self._graph) for node in nodes))
            raise _Fused

        with contextlib.ExitStack() as stack:
            stack.enter_context(self._alone(_post_fusion_custom_pass=stop))
            stack.enter_context(self._choosing(levels))
            stack.enter_context(V.set_graph_handler(self._graph))
            stack.enter_context(V.set_debug_handler(DebugContext()))
            stack.enter_context(contextlib.suppress(_Fused))
            Scheduler(self._graph.operations)
        return seen[0]

    def compiled(
        self, levels: Sequence[int] | None, *, apart: bool = False
    ) -> tuple[Callable[[list[Any]], Any], tuple[NodeGroup, ...]]:
        """(the compiled core, its groups in the order in which they run). Inductor writes all loops that follow each
        other into one function of C++; ``apart``: each group is a function of its own. Raises
        :class:`RuntimeRefused` where Inductor cannot compile it.
        """
        from torch._inductor.codegen.cpp import CppScheduling
        from torch._inductor.compile_fx import compile_fx_inner
        from torch._inductor.virtualized import V

        graphs: list[Any] = []
        made: dict[tuple[int, ...], NodeGroup] = {}  # as they are for `fused`: later passes change loops and the order

        def keep(nodes: list[Any]) -> list[Any]:
            graphs.append(V.graph)
            made.update({group.nodes: group for group in (self._group(node, V.graph) for node in nodes)})
            return nodes

        most = 0 if apart else CppScheduling.MAX_FUSED_KERNEL_ARGS_NUM
        module, inputs, keywords = self._inner
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._alone(_post_fusion_custom_pass=keep))
            stack.enter_context(self._choosing(levels))
            stack.enter_context(_attribute(CppScheduling, "MAX_FUSED_KERNEL_ARGS_NUM", most))
            try:
                core = compile_fx_inner(copy.deepcopy(module), inputs, **keywords)
            except Exception as error:
                raise RuntimeRefused(f"TorchInductor cannot compile these groups: {_first(error)}") from error
        return core, tuple(made[self._members(node)] for node in graphs[-1].scheduler.nodes)

    def call(self, core: Callable[[list[Any]], Any], inputs: Sequence[Any]) -> Any:
        """What the callable returns for ``inputs``, by a compiled core."""
        self._core = core
        try:
            with self._alone():
                return self._outer(*inputs)
        finally:
            self._core = _no_core

    # --- torch --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _alone(self, **options: Any) -> Iterator[None]:
        """With our folder, one thread, no gradients and no cache of graphs: that does not know of levels."""
        import torch
        from torch._functorch import config as functorch
        from torch._inductor import config

        own = {"fx_graph_cache": False, "fx_graph_remote_cache": False, "cpp_wrapper": False, "compile_threads": 1}
        own |= {"cpp.threads": 1, **options}
        with contextlib.ExitStack() as stack:
            stack.enter_context(_variable(_FOLDER, self.folder))
            stack.enter_context(config.patch(own))
            stack.enter_context(functorch.patch({"enable_autograd_cache": False}))
            stack.enter_context(one_thread())
            stack.enter_context(torch.no_grad())
            yield

    def _choosing(self, levels: Sequence[int] | None) -> contextlib.AbstractContextManager[None]:
        from torch._inductor.choices import InductorChoices
        from torch._inductor.virtualized import V

        if levels is None:
            found: Any = InductorChoices()
        else:
            found = _choices_by(
                {name: int(levels[at]) for name, at in self._numbers.items()}, self._makers, self._reads
            )
        chosen: contextlib.AbstractContextManager[None] = V.set_choices_handler(found)
        return chosen

    def _captured(self, function: Any) -> tuple[tuple[Any, Any, dict[str, Any]], Callable[..., Any]]:
        """What Inductor is to compile, and a callable like the function that runs whichever core is set."""
        import torch
        from torch._inductor.compile_fx import compile_fx

        kept: list[tuple[Any, Any, dict[str, Any]]] = []

        def inner(module: Any, inputs: Any, **keywords: Any) -> Any:
            kept.append((copy.deepcopy(module), inputs, keywords))

            def core(arguments: list[Any]) -> Any:
                return self._core(arguments)

            core._boxed_call = True  # type: ignore[attr-defined]
            return core

        module = function if isinstance(function, torch.nn.Module) else _module_of(function)
        try:
            exported = torch.export.export(module, self._example, strict=False).module()
            outer: Any = compile_fx(exported, list(self._example), inner_compile=inner)
        except Exception as error:
            raise ModelError(f"torch.export cannot export {_title(function)}: {_first(error)}") from error
        if len(kept) != 1:
            raise UsageError(f"{_title(function)} is not one graph with something to compile in it.")
        return kept[0], outer

    def _flat_arguments(self) -> list[Any]:
        seen: list[Any] = []

        def core(arguments: list[Any]) -> Any:
            seen.extend(arguments)
            raise _Fused

        self._core = core
        try:
            with contextlib.suppress(_Fused):
                self._outer(*self._example)
        finally:
            self._core = _no_core
        return seen

    def _lowered(self) -> tuple[Any, list[Any]]:
        """The lowered graph, and its nodes before fusion."""
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx_inner
        from torch._inductor.virtualized import V

        seen: list[tuple[Any, list[Any]]] = []

        def stop(nodes: list[Any]) -> list[Any]:
            seen.append((V.graph, list(nodes)))
            raise _Fused

        module, inputs, keywords = self._inner
        with config.patch({"_pre_fusion_custom_pass": stop}), contextlib.suppress(_Fused):
            compile_fx_inner(copy.deepcopy(module), inputs, **keywords)
        if not seen or not seen[0][1]:
            raise UsageError("There is no node to be fused: the callable computes nothing.")
        return seen[0]

    def _members(self, node: Any) -> tuple[int, ...]:
        return tuple(sorted(self._numbers[one.get_name()] for one in node.get_nodes()))

    def _group(self, node: Any, graph: Any) -> NodeGroup:
        inner, numbers = list(node.get_nodes()), self._members(node)
        if any(getattr(one, "_body", None) is None for one in inner):
            return NodeGroup(numbers, "")
        return NodeGroup(numbers, _signature(node, inner, graph))


def _checked_example(function: Any, example: Sequence[Any]) -> tuple[Any, ...]:
    import torch

    if not callable(function):
        raise UsageError(f"What is fused is a torch.nn.Module or a function; {type(function).__name__} is neither.")
    found = tuple(example) if isinstance(example, (tuple, list)) else (example,)
    wrong = [one for one in found if not isinstance(one, torch.Tensor) or one.device.type != "cpu"]
    if wrong or not found:
        what = type(wrong[0]).__name__ if wrong else "nothing"
        raise UsageError(f"The example is at least one tensor on the processor; got {what}.")
    return found


def _title(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _first(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _no_core(arguments: list[Any]) -> Any:
    raise AssertionError("no core is set")


def _module_of(function: Callable[..., Any]) -> Any:
    import torch

    class Wrapped(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return function(*inputs)

    return Wrapped()


@contextlib.contextmanager
def _attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def _choices_by(
    levels: Mapping[str, int], makers: Mapping[str, frozenset[str]], reads: Mapping[str, frozenset[str]]
) -> Any:
    """Inductor's own choices, but that the levels of nodes decide which pairs are joined, and which first."""
    from torch._inductor.choices import InductorChoices

    def names(node: Any) -> list[str]:
        return [one.get_name() for one in node.get_nodes()]

    def level(maker: Any, reader: Any) -> int:
        """The highest level of a node of ``maker`` that one of ``reader`` reads; of nodes that read the same, the lower
        level of the two.
        """
        above, below = names(maker), names(reader)
        direct = [levels[one] for one in above if any(one in makers[other] for other in below)]
        if direct:
            return max(direct)
        beside = [min(levels[one], levels[other]) for one in above for other in below if reads[one] & reads[other]]
        return max(beside, default=min(max(levels[one] for one in group) for group in (above, below)))

    class ByLevel(InductorChoices):
        @staticmethod
        def can_fuse_vertical(scheduler: Any, node1: Any, node2: Any, shared_data_score: int) -> bool:
            return level(node1, node2) > 0 and bool(
                InductorChoices.can_fuse_vertical(scheduler, node1, node2, shared_data_score)
            )

        @staticmethod
        def can_fuse_horizontal(scheduler: Any, node1: Any, node2: Any, shared_data_score: int) -> bool:
            return level(node1, node2) > 0 and bool(
                InductorChoices.can_fuse_horizontal(scheduler, node1, node2, shared_data_score)
            )

        @staticmethod
        def score_fusion(scheduler: Any, node1: Any, node2: Any) -> Any:
            return level(node1, node2), InductorChoices.score_fusion(scheduler, node1, node2)

    return ByLevel()


def _signature(node: Any, inner: Sequence[Any], graph: Any) -> str:
    """A digest of what a group computes, in which names do not matter."""
    members, made = {one.get_name() for one in inner}, set(node.get_buffer_names())
    parts = _structure(node)
    for one in inner:
        body = one._body
        parts += [str(dict(body.var_ranges)), str(dict(body.indexing_exprs))]
        for block in (body.root_block, *body.subblocks.values()):
            parts += [f"{step.name}={step.target}{step.args}{step.kwargs}" for step in block.graph.nodes]
        for buffer in one.get_outputs():
            kept = any(user.get_name() not in members for user in buffer.users)
            parts.append(f"{buffer.get_name()} {buffer.node.get_layout()} {kept}")
    read = dict.fromkeys(dep.name for one in inner for dep in one.read_writes.reads if dep.name not in made)
    inside = node.scheduler.name_to_buf
    for name in read:
        owned = name in inside and all(user.get_name() in members for user in inside[name].users)
        parts.append(f"{name} {graph.get_dtype(name)} {graph.get_numel(name)} {owned}")
    names: dict[str, str] = {}
    known = "|".join(sorted(map(re.escape, (*made, *members, *read)), key=len, reverse=True))
    text = re.sub(rf"\b(?:{known})\b", lambda one: names.setdefault(one[0], f"@{len(names)}"), "\n".join(parts))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _structure(node: Any) -> list[str]:
    """How loops are nested: some groups share the outer loops only."""
    outer = node.get_outer_nodes() if hasattr(node, "get_outer_nodes") else [node]
    return [f"{type(node).__name__} {[len(one.get_nodes()) for one in outer]}"]


def _sketch(
    nodes: Sequence[Any], graph: Any, makers: Mapping[str, frozenset[str]], made: Mapping[str, str]
) -> NetworkSketch:
    numbers = {node.get_name(): number for number, node in enumerate(nodes)}

    def size(buffer: str) -> float:
        return float(graph.get_numel(buffer)) * float(graph.get_dtype(buffer).itemsize)

    given = [sum(size(dep.name) for dep in node.read_writes.reads if dep.name not in made) for node in nodes]
    return NetworkSketch(
        "inductor",
        np.array([_operations(node) for node in nodes]),
        np.array([bool(node.is_extern()) for node in nodes]),
        np.array([sum(size(one) for one in sorted(node.get_buffer_names())) for node in nodes]),
        np.array(given, np.float64),
        tuple(tuple(sorted(numbers[one] for one in makers[node.get_name()])) for node in nodes),
    )


def _operations(node: Any) -> float:
    """Steps of arithmetic of a node's loops; of what is called it is not known, and given as one for each element."""
    body = getattr(node, "_body", None)
    if body is None:
        return float(sum(buffer.node.get_numel() for buffer in node.get_outputs() if buffer.node.has_tensor_output()))
    each = sum(
        step.op == "call_method" and str(step.target) not in _MOVES
        for block in (body.root_block, *body.subblocks.values())
        for step in block.graph.nodes
    )
    return float(max(1, each)) * float(np.prod([float(one) for one in body.var_ranges.values()], dtype=np.float64))
