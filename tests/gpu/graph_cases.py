"""Small graphs, one for each thing that the cudnn back end does: the tests run them on the stand-in, ``make gpu-check``
on a GPU, both beside ONNX's reference evaluator.
"""

from __future__ import annotations

CONV = "x: f32[2,4,7,6] = input\nw: f32[6,4,3,3] = const\n"
#: name -> (graph, what its steps are called, in part)
GRAPHS = {
    "conv bias relu": (
        CONV + "b: f32[6] = const\ny = Conv{pads=[1,1,1,1]}(x, w, b)\nz = Relu(y)\nreturn z",
        "bias, Relu",
    ),
    "conv relu, no bias": (CONV + "y = Conv{pads=[1,1,1,1], strides=[2,2]}(x, w)\nz = Relu(y)\nreturn z", "Relu"),
    "conv residual relu": (
        CONV + "r: f32[2,6,7,6] = input\nb: f32[6] = const\ny = Conv{pads=[1,1,1,1]}(x, w, b)\ns = Add(r, y)\n"
        "z = Relu(s)\nreturn z",
        "residual, Relu",
    ),
    "conv bias alone": (CONV + "b: f32[6] = const\ny = Conv(x, w, b)\nreturn y", "convolution"),
    "conv channel add, sigmoid": (
        CONV + "b: f32[6,1,1] = const\ny = Conv(x, w)\nz = Add(y, b)\ns = Sigmoid(z)\nt = Mul(z, s)\nreturn t",
        "convolution",
    ),
    "conv batch norm": (
        CONV + "s: f32[6] = const [1,2,3,4,5,6]\nt: f32[6] = const [0,1,0,1,0,1]\nm: f32[6] = const [1,1,2,2,3,3]\n"
        "v: f32[6] = const [1,2,1,2,1,2]\ny = Conv(x, w)\nz = BatchNormalization(y, s, t, m, v)\nr = Relu(z)\nreturn r",
        "convolution",
    ),
    "conv uneven pads": (CONV + "y = Conv{pads=[0,1,1,0]}(x, w)\nreturn y", "convolution"),
    "conv behind pad": (
        CONV + "p = Pad{pads=[0,0,1,1,0,0,1,1], value=0.0}(x)\ny = Conv(p, w)\nreturn y",
        "convolution",
    ),
    "grouped dilated conv": (
        ("x: f32[1,4,9,9] = input\nw: f32[6,2,3,3] = const\ny = Conv{dilations=[2,2], group=2}(x, w)\nreturn y"),
        "2 groups",
    ),
    "conv 1-d": (("x: f32[2,3,9] = input\nw: f32[4,3,3] = const\ny = Conv{pads=[1,1]}(x, w)\nreturn y"), "convolution"),
    "conv 3-d": (("x: f32[1,2,4,5,6] = input\nw: f32[3,2,2,2,2] = const\ny = Conv(x, w)\nreturn y"), "convolution"),
    "matmul bias gelu": (
        (
            "x: f32[2,5,8] = input\nw: f32[8,6] = const\nb: f32[6] = const\ny = MatMul(x, w)\n"
            "z = Add(b, y)\nu = Gelu(z)\n"
            "return u"
        ),
        "bias, Gelu",
    ),
    "matmul bias relu": (
        (
            "x: f32[5,8] = input\nw: f32[8,6] = const\nb: f32[6] = const\ny = MatMul(x, w)\n"
            "z = Add(y, b)\nu = Relu(z)\n"
            "return u"
        ),
        "bias + Relu",
    ),
    "batched matmul": (("a: f32[2,3,4,5] = input\nb: f32[2,3,5,6] = input\ny = MatMul(a, b)\nreturn y"), "product"),
    "broadcast matmul": (("a: f32[2,1,4,5] = input\nb: f32[3,5,6] = input\ny = MatMul(a, b)\nreturn y"), "product"),
    "shared left factor": ("a: f32[4,5] = input\nb: f32[3,5,6] = input\ny = MatMul(a, b)\nreturn y", "product"),
    "vector by matrix": ("a: f32[5] = input\nb: f32[3,5,6] = input\ny = MatMul(a, b)\nreturn y", "product"),
    "matrix by vector": ("a: f32[2,4,5] = input\nb: f32[5] = input\ny = MatMul(a, b)\nreturn y", "product"),
    "scaled product with a transposed factor": (
        (
            "q: f32[2,3,4,8] = input\nk: f32[2,3,5,8] = input\ns: f32[] = const 0.25\n"
            "t = Transpose{perm=[0,1,3,2]}(k)\n"
            "y = MatMul(q, t)\nz = Mul(y, s)\nreturn z"
        ),
        "product [4,8,5]",
    ),
    "gemm": (
        (
            "a: f32[5,4] = input\nb: f32[6,5] = const\nc: f32[6] = const\n"
            "y = Gemm{alpha=0.5, transA=1, transB=1}(a, b, c)\nreturn y"
        ),
        "bias",
    ),
    "gemm with a column": (
        (
            "a: f32[4,5] = input\nb: f32[5,6] = const\nc: f32[4,1] = const\n"
            "y = Gemm{beta=2.0}(a, b, c)\nz = Tanh(y)\n"
            "return z"
        ),
        "product",
    ),
    "pointwise chain": (
        (
            "x: f32[2,3,4] = input\ny: f32[3,1] = input\nh: f32[] = const 0.5\na = Add(x, y)\n"
            "b = Tanh(a)\nc = Mul(b, h)\n"
            "d = Sub(c, x)\nreturn d"
        ),
        "pointwise Add Tanh Mul Sub",
    ),
    "four neighbours at a time": (
        "x: f32[64,128] = input\nr: f32[128] = input\nc: f32[64,1] = input\na = Add(x, r)\nb = Mul(a, c)\nreturn a, b",
        "pointwise Add; pointwise Mul",
    ),
    "many rows of odd length": (
        "x: f32[65,67] = input\nr: f32[67] = input\na = Add(x, r)\nb = Relu(a)\nreturn b",
        "pointwise Add Relu",
    ),
    "one number too many for fours": ("x: f32[65,67] = input\ny = Relu(x)\nreturn y", "pointwise Relu"),
    "wide rows cut out": (
        (
            "x: f32[80,132] = input\na = Slice{starts=[4], ends=[132], axes=[1]}(x)\n"
            "b = Slice{starts=[1], ends=[129], axes=[1]}(x)\nreturn a, b"
        ),
        "slice",
    ),
    "rows cut out of odd ones": (
        "x: f32[80,130] = input\na = Slice{starts=[0], ends=[128], axes=[1]}(x)\nreturn a",
        "slice",
    ),
    "two results of one chain": (
        "x: f32[4,5] = input\na = Exp(x)\nb = Neg(a)\nreturn a, b",
        "pointwise",
    ),
    "activations": (
        (
            "x: f32[3,50] = input\na = LeakyRelu{alpha=0.1}(x)\nb = Elu(a)\nc = HardSwish(b)\n"
            "d = Softplus(c)\ne = Mish(d)\n"
            "f = HardSigmoid(e)\ng = Selu(f)\nh = Softsign(g)\ni = Celu(h)\nreturn i"
        ),
        "pointwise",
    ),
    "comparison and choice": (
        ("x: f32[4,5] = input\ny: f32[5] = input\nc = Greater(x, y)\nn = Not(c)\nz = Where(n, x, y)\nreturn z, c"),
        "pointwise",
    ),
    "integers": (
        ("x: i64[6] = input\nt: i64[] = const 4\na = Mul(x, x)\nb = Div(a, t)\nc = Cast{to=1}(b)\nreturn b, c"),
        "pointwise",
    ),
    "clip": (("x: f32[9] = input\na: f32[] = const -0.5\nb: f32[] = const 0.5\ny = Clip(x, a, b)\nreturn y"), "Clip"),
    "power": ("x: f32[9] = input\nt: f32[] = const 2\ny = Pow(x, t)\nreturn y", "Pow"),
    "sum of many": (
        (
            "a: f32[4] = input\nb: f32[4] = input\nc: f32[4] = input\ny = Sum(a, b, c)\nz = Mean(y, a)\n"
            "u = Max(z, b)\n"
            "return u"
        ),
        "Sum",
    ),
    "transpose matrix": ("x: f32[37,41] = input\ny = Transpose{perm=[1,0]}(x)\nreturn y", "tiles"),
    "transpose heads": ("x: f32[2,5,3,4] = input\ny = Transpose{perm=[0,2,1,3]}(x)\nreturn y", "transposition"),
    "reverse axes": ("x: f32[2,3,4,5] = input\ny = Transpose{perm=[3,2,1,0]}(x)\nreturn y", "transposition"),
    "transpose integers": ("x: i64[3,4] = input\ny = Transpose{perm=[1,0]}(x)\nreturn y", "transposition"),
    "concat": ("x: f32[2,3,4] = input\ny: f32[2,5,4] = input\nz = Concat{axis=1}(x, y, x)\nreturn z", "of 3"),
    "split": ("x: f32[2,9] = input\na, b = Split{axis=1, split=[4,5]}(x)\nreturn a, b", "split into 2"),
    "slice": (
        ("x: f32[6,7] = input\ny = Slice{starts=[1,0], ends=[5,7], axes=[0,1], steps=[2,3]}(x)\nreturn y"),
        "slice",
    ),
    "expand": ("x: f32[3,1] = input\ny = Expand{shape=[2,3,4]}(x)\nreturn y", "expansion"),
    "tile": ("x: f32[2,3] = input\ny = Tile{repeats=[2,2]}(x)\nreturn y", "tiling"),
    "pad edge": ('x: f32[3,4] = input\ny = Pad{mode="edge", pads=[1,0,2,1]}(x)\nreturn y', "padding"),
    "pad reflect": ('x: f32[3,4] = input\ny = Pad{mode="reflect", pads=[1,2,2,1]}(x)\nreturn y', "padding"),
    "pad number": ("x: f32[3,4] = input\ny = Pad{pads=[1,2,0,1], value=3.5}(x)\nreturn y", "padding"),
    "resize": (
        (
            'x: f32[1,2,3,4] = input\ny = Resize{mode="nearest", coordinate_transformation_mode="asymmetric", '
            'nearest_mode="floor", scales=[1.0,1.0,2.0,2.0]}(x)\nreturn y'
        ),
        "resizing",
    ),
    "depth to space": ("x: f32[1,8,2,3] = input\ny = DepthToSpace{blocksize=2}(x)\nreturn y", "depth to space"),
    "depth to space, rows": (
        'x: f32[1,8,2,3] = input\ny = DepthToSpace{blocksize=2, mode="CRD"}(x)\nreturn y',
        "depth to space",
    ),
    "space to depth": ("x: f32[1,2,4,6] = input\ny = SpaceToDepth{blocksize=2}(x)\nreturn y", "space to depth"),
    "gather rows": ("x: f32[9,4] = const\ni: i64[2,3] = input\ny = Gather{axis=0}(x, i)\nreturn y", "gather"),
    "gather from the end": (
        "x: f32[3,4,2] = input\ni: i64[2] = const [-1,1]\ny = Gather{axis=1}(x, i)\nreturn y",
        "gather",
    ),
    "max pool": (
        ("x: f32[1,3,7,7] = input\ny = MaxPool{kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]}(x)\nreturn y"),
        "pool, cuDNN",
    ),
    "max pool, uneven": (
        ("x: f32[1,3,7,7] = input\ny = MaxPool{kernel_shape=[3,3], strides=[2,2], pads=[0,0,1,1]}(x)\nreturn y"),
        "own kernel",
    ),
    "average pool": (
        ("x: f32[1,3,6,6] = input\ny = AveragePool{kernel_shape=[3,3], pads=[1,1,1,1]}(x)\nreturn y"),
        "pool, cuDNN",
    ),
    "average pool with padding counted": (
        (
            "x: f32[1,3,6,6] = input\n"
            "y = AveragePool{kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1}(x)\nreturn y"
        ),
        "pool, cuDNN",
    ),
    "pool, ceil": (
        ("x: f32[1,2,6,6] = input\ny = MaxPool{kernel_shape=[3,3], strides=[2,2], ceil_mode=1}(x)\nreturn y"),
        "own kernel",
    ),
    "global pools": (
        ("x: f32[2,3,4,5] = input\ny = GlobalAveragePool(x)\nz = GlobalMaxPool(x)\nreturn y, z"),
        "reduction",
    ),
    "reductions": (
        (
            "x: f32[3,20,5] = input\na = ReduceSum{axes=[1], keepdims=0}(x)\nb = ReduceMean{axes=[0,2]}(x)\n"
            "c = ReduceMax{axes=[2]}(x)\nd = ReduceL2{axes=[1]}(x)\ne = ReduceLogSumExp{axes=[1]}(x)\n"
            "f = ReduceProd{axes=[0]}(x)\nreturn a, b, c, d, e, f"
        ),
        "reduction",
    ),
    "arg max": (
        ("x: f32[3,7] = input\na = ArgMax{axis=1}(x)\nb = ArgMin{axis=0, keepdims=0}(x)\nreturn a, b"),
        "reduction",
    ),
    "softmax": (
        ("x: f32[3,4,9] = input\na = Softmax(x)\nb = Softmax{axis=1}(x)\nc = LogSoftmax(x)\nreturn a, b, c"),
        "softmax",
    ),
    "layer norm of a sum": (
        (
            "x: f32[2,3,16] = input\nr: f32[2,3,16] = input\ns: f32[16] = const\nb: f32[16] = const\n"
            "y = Add(x, r)\n"
            "z = LayerNormalization(y, s, b)\nreturn z"
        ),
        "normalisation",
    ),
    "instance norm": (
        ("x: f32[2,3,4,4] = input\ns: f32[3] = const\nb: f32[3] = const\nz = InstanceNormalization(x, s, b)\nreturn z"),
        "normalisation",
    ),
    "views cost nothing": (
        ("x: f32[2,3,4] = input\na = Reshape{shape=[6,4]}(x)\nb = Relu(a)\nc = Unsqueeze{axes=[0]}(b)\nreturn c"),
        "Relu",
    ),
    "input handed through": ("x: f32[2,3] = input\ny = Neg(x)\nreturn y, x", "Neg"),
    "constant result": ("x: f32[2] = input\nw: f32[3] = const [1,2,3]\ny = Neg(x)\nreturn y, w", "Neg"),
}
