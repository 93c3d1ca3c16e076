"""What a node of a model computes as TVM's own expressions, and code of it that needs no TVM: an object file with a
plain C function. Opened in TVM's process only (:mod:`rlflow.tuner.tvm_child`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import IRModule, get_global_func, ir, te, tirx
from tvm.ir.instrument import pass_instrument
from tvm.ir.transform import PassContext
from tvm.s_tir.pipeline import default_s_tir_pipeline
from tvm.target import Target, codegen

from rlflow.errors import UsageError
from rlflow.frontends.generated_sites import CONVOLUTION, RELU6, Convolution, Product
from rlflow.kernels.tickets import instruction_set

#: TVM's names of processors for which code is made, by what this one lets programs use.
_PROCESSORS = {"avx512": "x86-64-v4", "avx2": "x86-64-v3"}
#: TVM's lowering ends before these: they make functions that only TVM can call.
_PACKING = ("tirx.SplitHostDevice", "tirx.MakePackedAPI", "tirx.FP8StorageLegalize", "tirx.BF16StorageLegalize")


def isa_here() -> tuple[str, Target]:
    """The instruction set that code is made for here, and the target. Raises UsageError where there is none."""
    name = instruction_set()
    if name not in _PROCESSORS:
        raise UsageError("Code is generated for AVX2 and AVX-512, and this processor has neither.")
    return name, Target({"kind": "llvm", "mcpu": _PROCESSORS[name], "num-cores": 1})


def target_here() -> Target:
    """The target of programs that TVM itself runs: this processor, by its name. Virtual machines may hide what LLVM
    thinks that a processor of that name has; then what is left.
    """
    own = Target({"kind": "llvm", "mcpu": str(codegen.llvm_get_system_cpu()), "num-cores": 1})
    hidden = codegen.target_has_features("avx512f", own) and instruction_set() != "avx512"
    return isa_here()[1] if hidden else own


def tensors(kind: str, sizes: Sequence[int]) -> list[Any]:
    """The inputs and the output of a site; ``sizes``: the shape's rank and the shape of the first input, then the
    site's own.
    """
    rank, *rest = sizes
    shape, own = rest[:rank], rest[rank:]
    return _convolution(shape, Convolution(*own)) if kind == CONVOLUTION else _product(shape, Product(*own))


def write_object(module: IRModule, target: Target, symbol: str, path: str) -> None:
    """Compile the scheduled function ``main`` of a module to an object file with the C function ``symbol``.

    It takes a pointer for each tensor, of any alignment, and returns 0.
    """
    lower, finish, _ = default_s_tir_pipeline()
    with PassContext(opt_level=3, instruments=[_UnpackedOnly()]):
        lowered = lower(tirx.transform.BindTarget(target.with_host(target))(module))["main"]
    pointers = [tirx.Var(f"p{at}", ir.PointerType(ir.PrimType("float32"))) for at in range(len(lowered.params))]
    views = [tirx.DeclBuffer(one, data=pointer) for one, pointer in zip(lowered.params, pointers, strict=True)]
    body: Any = tirx.SeqStmt([*views, lowered.body, tirx.stmt.Return(tirx.const(0, "int32"))])
    for key, value in (("device_id", 0), ("device_type", 1)):  # of the processor: who allocates wants to know
        body = tirx.AttrStmt(ir.StringImm("default"), key, tirx.const(value, "int32"), body)
    plain = tirx.PrimFunc(pointers, body, ir.PrimType("int32"), lowered.attrs).without_attr("tirx.is_entry_func")
    plain = plain.with_attr("global_symbol", symbol).with_attr("calling_conv", 0)
    get_global_func("target.build.llvm")(finish()(IRModule({symbol: plain})), target).write_to_file(path)


@pass_instrument
class _UnpackedOnly:
    """Leaves out what makes functions of TVM's own calling convention."""

    def should_run(self, _: Any, info: Any) -> bool:
        return info.name not in _PACKING


def _convolution(shape: Sequence[int], s: Convolution) -> list[Any]:
    return _blocked_depthwise(shape, s) if s.block else _plain_convolution(shape, s)


def _plain_convolution(shape: Sequence[int], s: Convolution) -> list[Any]:
    batch, channels, height, width = shape
    x = te.placeholder((batch, channels, height, width), name="x")
    w = te.placeholder((s.channels, s.members, s.height, s.width), name="w")
    out, share = _out_sizes(s, height, width), s.channels // s.groups
    padded = _padded(x, (batch, channels, height + s.top + s.bottom, width + s.left + s.last), s, 2)
    i, r, q = te.reduce_axis((0, s.members), "i"), te.reduce_axis((0, s.height), "r"), te.reduce_axis((0, s.width), "q")
    axes = [r, q] if s.members == 1 else [i, r, q]

    def at(n: Any, o: Any, y: Any, z: Any) -> Any:
        member = 0 if s.members == 1 else i
        place = (y * s.down + r * s.dilation_down, z * s.right + q * s.dilation_right)
        return te.sum(padded[n, o // share * s.members + member, place[0], place[1]] * w[o, member, r, q], axis=axes)

    summed = te.compute((batch, s.channels, *out), at, name="conv")
    bias = te.placeholder((s.channels,), name="b") if s.bias else None
    return _ended([x, w], summed, bias, lambda place: (place[1],), s.activation)


def _blocked_depthwise(shape: Sequence[int], s: Convolution) -> list[Any]:
    """The channels of a block are the last axis, which all of it shares."""
    batch, channels, height, width = shape
    blocks, block = channels // s.block, s.block
    x = te.placeholder((batch, blocks, height, width, block), name="x")
    w = te.placeholder((blocks, s.height, s.width, block), name="w")
    out = _out_sizes(s, height, width)
    padded = _padded(x, (batch, blocks, height + s.top + s.bottom, width + s.left + s.last, block), s, 2)
    r, q = te.reduce_axis((0, s.height), "r"), te.reduce_axis((0, s.width), "q")

    def at(n: Any, o: Any, y: Any, z: Any, c: Any) -> Any:
        place = (y * s.down + r * s.dilation_down, z * s.right + q * s.dilation_right)
        return te.sum(padded[n, o, place[0], place[1], c] * w[o, r, q, c], axis=[r, q])

    summed = te.compute((batch, blocks, *out, block), at, name="conv")
    bias = te.placeholder((blocks, block), name="b") if s.bias else None
    return _ended([x, w], summed, bias, lambda place: (place[1], place[4]), s.activation)


def _ended(inputs: list[Any], summed: Any, bias: Any, channel: Callable[[Any], Any], activation: int) -> list[Any]:
    """The inputs, and the sums with what follows; ``channel``: where a place's bias is."""
    if bias is None and not activation:
        return [*inputs, summed]

    def at(*place: Any) -> Any:
        value = summed[place] + bias[channel(place)] if bias is not None else summed[place]
        positive = te.max(value, tirx.const(0.0, "float32")) if activation else value
        return te.min(positive, tirx.const(6.0, "float32")) if activation == RELU6 else positive

    return [*inputs, *([bias] if bias is not None else []), te.compute(summed.shape, at, name="y")]


def _out_sizes(s: Convolution, height: int, width: int) -> tuple[int, int]:
    down = (height + s.top + s.bottom - s.dilation_down * (s.height - 1) - 1) // s.down + 1
    return down, (width + s.left + s.last - s.dilation_right * (s.width - 1) - 1) // s.right + 1


def _padded(x: Any, shape: Sequence[int], s: Convolution, first: int) -> Any:
    """``x`` with zeros around the two axes from ``first`` on; ``x`` itself where there are none."""
    if not any((s.top, s.left, s.bottom, s.last)):
        return x
    height, width = (int(size) for size in x.shape[first : first + 2])

    def at(*place: Any) -> Any:
        y, z = place[first] - s.top, place[first + 1] - s.left
        inside = te.all(y >= 0, y < height, z >= 0, z < width)
        moved = (*place[:first], y, z, *place[first + 2 :])
        return tirx.if_then_else(inside, x[moved], tirx.const(0.0, "float32"))

    return te.compute(tuple(shape), at, name="padded")


def _product(shape: Sequence[int], s: Product) -> list[Any]:
    rows = 1
    for size in shape[:-1]:
        rows *= size
    x, w = te.placeholder((rows, s.depth), name="x"), te.placeholder((s.depth, s.columns), name="w")
    k = te.reduce_axis((0, s.depth), "k")
    summed = te.compute((rows, s.columns), lambda i, j: te.sum(x[i, k] * w[k, j], axis=[k]), name="product")
    return _ended([x, w], summed, te.placeholder((s.columns,), name="b") if s.bias else None, lambda at: (at[1],), 0)
