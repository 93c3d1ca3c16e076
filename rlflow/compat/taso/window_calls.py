"""Operators that slide a window over an image, and the normalisation that follows them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from rlflow.compat.taso.arguments import Sizes, explained, four, integers, number, pair
from rlflow.compat.taso.calls import Calls
from rlflow.compat.taso.names import get_padding_mode
from rlflow.compat.taso.store import Dim, PyTensor
from rlflow.errors import UsageError

#: cuDNN's smallest epsilon of most versions, which TASO's -1 stands for; also ONNX's default.
DEFAULT_EPSILON = 1e-5


class Windows(Calls):
    """Methods that add an operator on [N, C, H, W] and return its result."""

    @explained
    def conv2d(
        self,
        input: PyTensor,
        weight: PyTensor,
        strides: Sizes,
        padding: str | Sizes,
        activation: str = "NONE",
        *,
        bias: PyTensor | None = None,
        dilations: Sizes = (1, 1),
    ) -> PyTensor:
        """Convolution of [N, C, H, W] with [O, C / groups, KH, KW]; the number of groups follows from the two shapes.

        ``padding``: SAME (output ceil(size / stride); where the total is odd, the extra row goes first), VALID (none),
        or numbers: one, (vertical, horizontal), or (top, left, bottom, right). ``bias``: [O]. Then the activation.
        """
        group = self._groups(input, weight)
        kernel = [weight.dim(2), weight.dim(3)]
        attrs = {**self._window(input, kernel, strides, padding, dilations), "group": group}
        operands = self._store.alike(input, weight, *([] if bias is None else [bias]), integers=False)
        return self._activated(self._store.add("Conv", attrs, operands)[0], activation)

    @explained
    def maxpool2d(
        self, input: PyTensor, kernels: Sizes, strides: Sizes, padding: str | Sizes, activation: str = "NONE"
    ) -> PyTensor:
        """Largest element of each window of [N, C, H, W]; padding never wins. Then the activation."""
        return self._pooled("MaxPool", input, kernels, strides, padding, activation)

    @explained
    def avgpool2d(
        self, input: PyTensor, kernels: Sizes, strides: Sizes, padding: str | Sizes, activation: str = "NONE"
    ) -> PyTensor:
        """Mean of each window of [N, C, H, W], padding not counted. Then the activation."""
        return self._pooled("AveragePool", input, kernels, strides, padding, activation)

    @explained
    def batchnorm(
        self, input: PyTensor, scale: PyTensor, bias: PyTensor, mean: PyTensor, var: PyTensor, epsilon: float = -1
    ) -> PyTensor:
        """scale · (x - mean) / sqrt(var + epsilon) + bias per channel (axis 1). ``epsilon`` -1 stands for 1e-5."""
        added = number(epsilon, "epsilon")
        if not 0 <= added < inf and added != -1:
            raise UsageError(f"epsilon is {added:g}; expected zero or more, or -1 for {DEFAULT_EPSILON:g}.")
        attrs = {"epsilon": DEFAULT_EPSILON if added == -1 else added}
        operands = self._store.alike(input, scale, bias, mean, var, integers=False)
        return self._store.add("BatchNormalization", attrs, operands)[0]

    def _pooled(
        self, op: str, input: PyTensor, kernels: Sizes, strides: Sizes, padding: str | Sizes, activation: str
    ) -> PyTensor:
        self._image(input, "input")
        sizes = pair(kernels, "kernels")
        attrs = self._window(input, sizes, strides, padding, (1, 1))
        if any(pad >= size for pad, size in zip(attrs.get("pads", ()), sizes * 2, strict=False)):
            raise UsageError(f"padding {attrs['pads']} must be smaller than the kernel, {sizes}.")
        return self._activated(self._store.add(op, attrs, [self._store.as_float(input)])[0], activation)

    def _image(self, tensor: PyTensor, what: str) -> None:
        self._store.value_of(tensor, what)
        if tensor.nDim is not None and tensor.nDim != 4:
            raise UsageError(f"{what} has rank {tensor.nDim}; expected [N, C, H, W] or [O, C / groups, KH, KW].")

    def _groups(self, input: PyTensor, weight: PyTensor) -> int:
        self._image(input, "input")
        self._image(weight, "weight")
        channels, inner, outer = input.dim(1), weight.dim(1), weight.dim(0)
        if not (isinstance(channels, int) and isinstance(inner, int) and isinstance(outer, int)):
            raise UsageError("the channels are not all known; the groups follow from them.")
        if inner < 1 or channels % inner or outer % (channels // inner):
            raise UsageError(
                f"{channels} input channels and a weight for {inner} make {channels}/{inner} groups, which must be a "
                f"whole number that divides the {outer} output channels."
            )
        return channels // inner

    def _window(
        self, input: PyTensor, kernel: Sequence[Dim], strides: Sizes, padding: str | Sizes, dilations: Sizes
    ) -> dict[str, Any]:
        """Attributes of a convolution or pool over the last two axes of ``input``."""
        steps, spread = pair(strides, "strides"), pair(dilations, "dilations")
        sizes = integers(kernel, "kernels")
        if min(*steps, *spread, *sizes) < 1:
            raise UsageError(f"kernel {sizes}, strides {steps} and dilations {spread} must be at least 1.")
        attrs: dict[str, Any] = {"kernel_shape": sizes, "strides": steps, "dilations": spread}
        extents = [(size - 1) * wide + 1 for size, wide in zip(sizes, spread, strict=True)]
        if isinstance(padding, str) and get_padding_mode(padding) == 0:
            image = [dim for dim in (input.dim(2), input.dim(3)) if isinstance(dim, int)]
            if len(image) < 2:  # how much it is depends on the size
                return {**attrs, "auto_pad": "SAME_LOWER"}
            before, after = zip(*map(_same_pads, image, extents, steps), strict=True)
            return {**attrs, "pads": [*before, *after]}
        pads = [0, 0, 0, 0] if isinstance(padding, str) else four(padding)
        for place, (extent, name) in enumerate(zip(extents, ("height", "width"), strict=True)):
            size = input.dim(2 + place)
            if isinstance(size, int) and size + pads[place] + pads[place + 2] < extent:
                raise UsageError(f"the window's {name} {extent} exceeds the input's, {size} with padding {pads}.")
        return {**attrs, "pads": pads}


def _same_pads(size: int, extent: int, stride: int) -> tuple[int, int]:
    """(before, after) so that the output is ceil(size / stride); as in TASO's kernels, the odd row comes first."""
    total = max(extent - (size % stride or stride), 0)
    return (total + 1) // 2, total // 2
