"""What exporters write, in their spellings: the library's rules lead to the form that the runtime is fast at."""

from __future__ import annotations

import pytest

from rlflow import _core
from rlflow.rewrite import RuleLibrary, all_shipped

LIBRARY: RuleLibrary = all_shipped()
X = "x: f32[1,8,6,6] = input\n"
ROWS = "x: f32[1,8,6] = input\n"
ROWS12 = "x: f32[1,12,4] = input\n"
GROUPED = (
    "q: f32[1,6,1,4] = input\nk: f32[1,2,5,4] = input\nc: f32[] = const 0.5\nu = Unsqueeze{axes=[2]}(k)\n"
    "e = Expand{shape=[1,2,3,5,4]}(u)\n"
)
CONSTANTS = (
    "half: f32[] = const 0.5\none: f32[1] = const [1.0]\nc: f32[] = const 0.044715\nk: f32[] = const 0.79788458\n"
    "three: f32[] = const 3.0\n"
)
SIX = "three: f32[] = const 3.0\nz: f32[] = const 0.0\nsix: f32[] = const 6.0\n"
GELU = X + CONSTANTS + "p = Pow(x, three)\nr = Mul(p, c)\ns0 = Add(x, r)\nu = Mul(s0, k)\n"
KNOWN = {
    "mish": (X + "y = Mish(x)", "mish-is-quotient", "Exp"),
    "mish-of-softplus": (X + "s = Softplus(x)\nt = Tanh(s)\ny = Mul(x, t)", "mish-of-softplus", "Exp"),
    "mish-turned-round": (X + "s = Softplus(x)\nt = Tanh(s)\ny = Mul(t, x)", "mish-of-softplus", "Exp"),
    "mish-of-log": (
        X + "o: f32[1] = const [1.0]\ne = Exp(x)\na = Add(o, e)\nl = Log(a)\nt = Tanh(l)\ny = Mul(t, x)",
        "mish-of-log",
        "Div",
    ),
    "root-as-power": (X + "h: f32[] = const 0.5\ny = Pow(x, h)", "power-half-is-root", "Sqrt"),
    "root-as-power-of-a-tensor": (X + "h: f32[1,1] = const [0.5]\ny = Pow(x, h)", "power-half-is-root", "Sqrt"),
    "cube": (X + "h: f32[] = const 3.0\ny = Pow(x, h)", "power-three-is-product", "Mul"),
    "cube-of-integers": (X + "h: i64[] = const 3\ny = Pow(x, h)", "power-three-is-product", "Mul"),
    "scaled-by-inverse-root": (
        ROWS + "v: f32[1,8,1] = input\ns = Sqrt(v)\nr = Reciprocal(s)\ny = Mul(r, x)",
        "product-with-reciprocal-is-quotient",
        "Div",
    ),
    "norm": (ROWS + "n = ReduceL2{axes=[2]}(x)\ny = Div(x, n)", "quotient-is-product-with-reciprocal", "Reciprocal"),
    "norm-in-one": (ROWS + "y = ReduceL2{axes=[2]}(x)", "root-of-sum-of-squares", "Sqrt"),
    "swish": (X + "y = Swish(x)", "swish-is-gate", "Sigmoid"),
    "softplus": (X + "y = Softplus(x)", "softplus-is-log", "Log"),
    "gelu-by-tanh": (
        GELU + "t = Tanh(u)\na = Add(t, one)\ns = Mul(x, half)\ny = Mul(s, a)",
        "tanh-gate-is-sigmoid",
        "Sigmoid",
    ),
    "gelu-by-tanh-turned-round": (
        GELU + "t = Tanh(u)\na = Add(one, t)\ns = Mul(half, x)\ny = Mul(a, s)",
        "tanh-gate-is-sigmoid",
        "Sigmoid",
    ),
    "gelu-by-tanh-halved-last": (
        GELU + "t = Tanh(u)\na = Add(one, t)\ns = Mul(x, a)\ny = Mul(half, s)",
        "tanh-gate-is-sigmoid-scaled-last",
        "Sigmoid",
    ),
    "gelu-by-tanh-halved-within": (
        GELU + "t = Tanh(u)\na = Add(t, one)\ns = Mul(half, a)\ny = Mul(x, s)",
        "half-of-tanh-is-sigmoid",
        "Sigmoid",
    ),
    "argument-of-gelu": (GELU + "y = Tanh(u)", "cubic-by-square", "Tanh"),
    "argument-of-gelu-by-products": (
        X + CONSTANTS + "q = Mul(x, x)\np = Mul(x, q)\nr = Mul(c, p)\ns = Add(r, x)\ny = Mul(k, s)",
        "cubic-by-square-of-products",
        "Mul",
    ),
    "group-norm": (
        X + "g: f32[8] = const\nb: f32[8] = const\ny = GroupNormalization{num_groups=2}(x, g, b)",
        "group-norm-in-parts",
        "InstanceNormalization",
    ),
    "group-norm-of-channels": (
        X + "g: f32[8] = const\nb: f32[8] = const\ny = GroupNormalization{num_groups=8}(x, g, b)",
        "group-norm-of-single-channels",
        "InstanceNormalization",
    ),
    "hard-swish": (
        X + "g = HardSigmoid{alpha=0.16666667, beta=0.5}(x)\ny = Mul(g, x)",
        "hard-gate-is-hard-swish",
        "HardSwish",
    ),
    "keys-turned-flat": (
        GROUPED + "r = Reshape{shape=[6,5,4]}(e)\nt = Transpose{perm=[0,2,1]}(r)\nb = Reshape{shape=[1,6,4,5]}(t)\n"
        "m = Mul(b, c)\ny = MatMul(q, m)",
        "turned-batch-of-matrices",
        "Transpose",
    ),
    "hard-swish-of-clip": (
        X + SIX + "a = Add(x, three)\nb = Clip(a, z, six)\nm = Mul(b, x)\ny = Div(m, six)",
        "hard-swish-of-quotient",
        "HardSwish",
    ),
    "hard-swish-of-gate": (
        X + SIX + "a = Add(three, x)\nb = Clip(a, z, six)\ng = Div(b, six)\ny = Mul(g, x)",
        "hard-swish-of-gate",
        "HardSwish",
    ),
    "hard-swish-scaled": (
        X + SIX + "k: f32[] = const 0.16666667\na = Add(three, x)\nb = Clip(a, z, six)\ng = Mul(k, b)\ny = Mul(g, x)",
        "hard-swish-of-scaled-gate",
        "HardSwish",
    ),
    "relu-six": (X + SIX + "a = Relu(x)\ny = Min(six, a)", "clip-of-relu-and-least", "Clip"),
    "bounds": (X + SIX + "a = Min(x, six)\ny = Max(z, a)", "clip-of-least-and-greatest", "Clip"),
    "bounds-turned": (X + SIX + "a = Max(x, z)\ny = Min(a, six)", "clip-of-greatest-and-least", "Clip"),
    "sum-over-count": (
        ROWS + "n: f32[1] = const [48.0]\ns = ReduceSum{axes=[1,2]}(x)\ny = Div(s, n)",
        "sum-over-count-is-mean",
        "ReduceMean",
    ),
    "negative": (X + "m: f32[] = const -1.0\ny = Mul(m, x)", "times-minus-one-is-negative", "Neg"),
    "shuffle": (
        X + "a = Reshape{shape=[1,2,4,6,6]}(x)\nb = Transpose{perm=[0,2,1,3,4]}(a)\ny = Reshape{shape=[1,8,6,6]}(b)",
        "channel-shuffle-as-gather",
        "Gather",
    ),
    "conv-1d": (ROWS + "w: f32[4,8,3] = const\ny = Conv{kernel_shape=[3]}(x, w)", "conv-1d-as-2d", "Squeeze"),
    "depthwise": (
        "x: f32[1,6,6,6] = input\nw: f32[6,1,3,3] = const\ny = Conv{group=6, kernel_shape=[3,3]}(x, w)",
        "depthwise-conv-padded",
        "Slice",
    ),
    "depthwise-multiplier": (
        X + "w: f32[16,1,3,3] = const\ny = Conv{group=8, kernel_shape=[3,3]}(x, w)",
        "depthwise-multiplier-as-gather",
        "Gather",
    ),
    "narrow-groups": (
        X + "w: f32[8,2,3,3] = const\ny = Conv{group=4, kernel_shape=[3,3]}(x, w)",
        "grouped-conv-in-pairs",
        "Conv",
    ),
    "mlp": (
        ROWS + "w: f32[6,8] = const\nb: f32[8] = const\nv: f32[8,6] = const\nd: f32[6] = const\n"
        "m = MatMul(x, w)\na = Add(b, m)\ng = Gelu(a)\nn = MatMul(g, v)\ny = Add(n, d)",
        "mlp-of-rows-as-convs",
        "Conv",
    ),
    "rows-that-become-a-map": (
        ROWS12 + "w: f32[4,6] = const\nb: f32[6] = const\nm = MatMul(x, w)\na = Add(b, m)\n"
        "t = Transpose{perm=[0,2,1]}(a)\ny = Reshape{shape=[1,6,3,4]}(t)",
        "product-of-rows-as-conv-of-map",
        "Conv",
    ),
    "a-map-that-becomes-rows": (
        X + "w: f32[8,4] = const\nb: f32[4] = const\nr = Reshape{shape=[1,8,36]}(x)\n"
        "t = Transpose{perm=[0,2,1]}(r)\nm = MatMul(t, w)\ny = Add(m, b)",
        "product-of-map-as-conv",
        "Conv",
    ),
}
SILENT = {
    "another-power": (X + "h: f32[] = const 0.25\ny = Pow(x, h)", "power-half-is-root"),
    "powers-that-differ": (
        X + "h: f32[2] = const [0.5, 3.0]\nz: f32[1,8,6,2] = input\ny = Pow(z, h)",
        "power-half-is-root",
    ),
    "tanh-of-another": (X + "z: f32[1,8,6,6] = input\ns = Softplus(z)\nt = Tanh(s)\ny = Mul(x, t)", "mish-of-softplus"),
    "gate-of-another-half": (
        GELU + "h: f32[] = const 0.25\nt = Tanh(u)\na = Add(t, one)\ns = Mul(x, h)\ny = Mul(s, a)",
        "tanh-gate-is-sigmoid",
    ),
    "another-hard-gate": (X + "g = HardSigmoid{alpha=0.2, beta=0.5}(x)\ny = Mul(g, x)", "hard-gate-is-hard-swish"),
    "bounds-that-cross": (X + SIX + "a = Min(x, z)\ny = Max(a, six)", "clip-of-least-and-greatest"),
    "sum-over-another-count": (
        ROWS + "n: f32[] = const 8.0\ns = ReduceSum{axes=[1,2]}(x)\ny = Div(s, n)",
        "sum-over-count-is-mean",
    ),
    "hard-swish-of-another-bound": (
        X + SIX + "a = Add(x, six)\nb = Clip(a, z, six)\nm = Mul(b, x)\ny = Div(m, six)",
        "hard-swish-of-quotient",
    ),
    "no-shuffle": (
        X + "a = Reshape{shape=[1,2,4,6,6]}(x)\nb = Transpose{perm=[0,2,1,3,4]}(a)\ny = Reshape{shape=[1,4,12,6]}(b)",
        "channel-shuffle-as-gather",
    ),
    "wide-groups": (
        "x: f32[1,24,6,6] = input\nw: f32[8,12,3,3] = const\ny = Conv{group=2, kernel_shape=[3,3]}(x, w)",
        "grouped-conv-in-pairs",
    ),
    "depthwise-of-eight": (
        X + "w: f32[8,1,3,3] = const\ny = Conv{group=8, kernel_shape=[3,3]}(x, w)",
        "depthwise-conv-padded",
    ),
    "split-otherwise": (
        GROUPED + "r = Reshape{shape=[6,5,4]}(e)\nt = Transpose{perm=[0,2,1]}(r)\nb = Reshape{shape=[1,6,2,10]}(t)\n"
        "y = Neg(b)",
        "turned-batch-of-matrices",
    ),
    "a-gate-of-full-size": (X + "g: f32[1,8,6,6] = input\nm = Mul(x, g)\ny = Add(x, m)", "sum-with-own-multiple"),
    "multiple-of-another": (
        X + "z: f32[1,8,6,6] = input\ng: f32[1,8,1,1] = input\nm = Mul(z, g)\ny = Add(x, m)",
        "sum-with-own-multiple",
    ),
    "factors-of-full-size": (
        X + "g: f32[1,8,6,6] = input\nw: f32[8,1,1] = const\nm = Mul(x, g)\ny = Mul(m, w)",
        "small-factors-first",
    ),
    "rows-that-become-other-channels": (
        ROWS12 + "w: f32[4,6] = const\nb: f32[6] = const\nm = MatMul(x, w)\na = Add(m, b)\n"
        "t = Transpose{perm=[0,2,1]}(a)\ny = Reshape{shape=[1,3,6,4]}(t)",
        "product-of-rows-as-conv-of-map",
    ),
}


def state(text: str, rule: str) -> _core.State:
    return _core.State(_core.Graph.parse(f"{text}\nreturn y"), _core.RuleSet([LIBRARY[rule].core]))


@pytest.mark.parametrize("name", KNOWN)
def test_a_spelling_is_known(name: str) -> None:
    text, rule, operator = KNOWN[name]
    found = state(text, rule)
    assert len(found.moves()) >= 1
    child = found.child(0)
    assert operator in [child.op(node) for node in child.order()]


@pytest.mark.parametrize("name", SILENT)
def test_a_neighbour_is_left_alone(name: str) -> None:
    text, rule = SILENT[name]
    assert not len(state(text, rule).moves())


def test_repeated_keys_in_the_exporters_spelling_are_not_repeated() -> None:
    """Two steps: the keys are turned in place, then the group's queries become rows of one product."""
    text, rule, _ = KNOWN["keys-turned-flat"]
    turned = state(text, rule).child(0)
    grouped = _core.State(turned, _core.RuleSet([LIBRARY["grouped-query-scores-scaled"].core]))
    assert len(grouped.moves()) == 1
    child = grouped.child(0)
    assert "Expand" not in [child.op(node) for node in child.order()]


def test_an_mlp_with_a_depthwise_convolution_stays_in_the_layout_of_maps() -> None:
    """Rows are permuted at its two ends only, where they are narrow."""
    lines = [
        "x: f32[1,12,4] = input\nw: f32[4,6] = const\nb: f32[6] = const\nv: f32[6,1,3,3] = const\nc: f32[6] = const",
        "u: f32[6,4] = const\nd: f32[4] = const\nm = MatMul(x, w)\na = Add(m, b)\nt = Transpose{perm=[0,2,1]}(a)",
        "r = Reshape{shape=[1,6,3,4]}(t)\nf = Conv{group=6, kernel_shape=[3,3], pads=[1,1,1,1]}(r, v, c)",
        "q = Reshape{shape=[1,6,12]}(f)\np = Transpose{perm=[0,2,1]}(q)\ng = Gelu(p)\nn = MatMul(g, u)\ny = Add(n, d)",
    ]
    names = ("product-of-rows-as-conv-of-map", "product-of-function-of-map-as-conv")
    rules = _core.RuleSet([LIBRARY[name].core for name in names])
    found = _core.State(_core.Graph.parse("\n".join([*lines, "return y"])), rules)
    for _ in names:
        assert len(found.moves()) >= 1
        found = _core.State(found.child(0), rules)
    working = [found.graph.op(node) for node in found.graph.order() if not found.graph.is_const(node)]
    wanted = ["Reshape", "Transpose", "Conv", "Conv", "Gelu", "Conv", "Transpose", "Reshape"]
    assert [op for op in working if op in {*wanted, "MatMul", "Add"}] == wanted
