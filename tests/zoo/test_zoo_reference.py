"""The sequence models against a plain numpy reading of their papers, in float64."""

from __future__ import annotations

from math import erf, sqrt

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

Weights = dict[str, np.ndarray]


def weights_of(model: onnx.ModelProto) -> Weights:
    return {tensor.name: numpy_helper.to_array(tensor).astype(np.float64) for tensor in model.graph.initializer}


def softmax(x: np.ndarray) -> np.ndarray:
    exponent = np.exp(x - x.max(-1, keepdims=True))
    return exponent / exponent.sum(-1, keepdims=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def nas_cell(w: Weights, scope: str, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    t = []
    for gate in range(8):
        total = x @ w[f"{scope}gate{gate}.input_weight"] + h @ w[f"{scope}gate{gate}.state_weight"]
        t.append(total + w.get(f"{scope}gate{gate}.bias", 0.0))
    relu, tanh = (lambda v: np.maximum(v, 0)), np.tanh
    m0, m1 = relu(t[0]) + sigmoid(t[3]), sigmoid(t[1]) + tanh(t[2])
    m2, m3 = sigmoid(t[4]) * tanh(t[5]), sigmoid(t[6]) * relu(t[7])
    return tanh(tanh(sigmoid(m1) + tanh(m2)) * tanh(tanh(m0) * tanh(m3)))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("inputs", ["steps", "sequence"])
def test_nasrnn_is_tasos_cell(small, feed, run, shared, biases, inputs):
    model = small("nasrnn", batch=2, shared=shared, biases=biases, inputs=inputs)
    values, w = feed(model, 1), weights_of(model)
    xs = values["x"] if inputs == "sequence" else [values[f"x{step}"] for step in range(3)]
    state = w["initial_state"]
    for step, x in enumerate(xs):
        state = nas_cell(w, "" if shared else f"step{step}.", x, state)
    close(run(model, values)[0], state)


def linear(w: Weights, name: str, x: np.ndarray) -> np.ndarray:
    return x @ w[f"{name}.weight"] + w.get(f"{name}.bias", 0.0)


def layer_norm(w: Weights, name: str, x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * w[f"{name}.weight"] + w[f"{name}.bias"]


def bert_layer(w: Weights, scope: str, x: np.ndarray, mask: np.ndarray, heads: int) -> np.ndarray:
    query, key, value = (linear(w, f"{scope}.attention.{part}", x) for part in ("query", "key", "value"))
    size = x.shape[-1] // heads
    context = np.empty_like(x)
    for head in range(heads):
        columns = slice(head * size, (head + 1) * size)
        scores = query[..., columns] @ key[..., columns].swapaxes(1, 2) / sqrt(size)
        scores[:, :, :] = np.where(mask[:, None, :] == 1, scores, -np.inf)
        context[..., columns] = softmax(scores) @ value[..., columns]
    x = layer_norm(w, f"{scope}.attention_norm", linear(w, f"{scope}.attention.output", context) + x)
    inner = linear(w, f"{scope}.intermediate", x)
    inner = inner * 0.5 * (1 + np.vectorize(erf)(inner / sqrt(2)))
    return layer_norm(w, f"{scope}.output_norm", linear(w, f"{scope}.output", inner) + x)


@pytest.mark.parametrize("opset", [13, 17, 20])
def test_bert_is_devlins_encoder(small, feed, run, opset):
    model = small("bert6-classifier", layers=2, batch=2, opset=opset)
    values, w = feed(model, 2), weights_of(model)
    values["attention_mask"][:, 6:] = 0
    x = w["embeddings.word"][values["input_ids"]] + w["embeddings.segment"][values["token_type_ids"]]
    x = layer_norm(w, "embeddings.norm", x + w["embeddings.position"][: x.shape[1]])
    for layer in range(2):
        x = bert_layer(w, f"layer{layer}", x, values["attention_mask"], 2)
    pooled = np.tanh(x[:, 0] @ w["pooler.weight"].T + w["pooler.bias"])
    close(run(model, values)[0], pooled @ w["classifier.weight"].T + w["classifier.bias"])


def rms_norm(w: Weights, name: str, x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w[f"{name}.weight"]


def rotate(x: np.ndarray, position: np.ndarray) -> np.ndarray:
    """Rotates each pair (i, i + half) of x [batch, size] by position · 10000^(-i / half)."""
    half = x.shape[-1] // 2
    angle = position * 10000.0 ** (-np.arange(half) / half)
    first, second = x[:, :half], x[:, half:]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def llama_attention(
    w: Weights, scope: str, x: np.ndarray, values: dict[str, np.ndarray], layer: int
) -> list[np.ndarray]:
    """One token's attention [batch, hidden], and the two longer caches."""
    position, mask = values["position_ids"], values["attention_mask"]
    keys, cached = (values[f"past.{layer}.{kind}"].astype(np.float64) for kind in ("key", "value"))
    kv_heads, size = keys.shape[1], keys.shape[3]
    heads = x.shape[-1] // size
    query, key, value = (linear(w, f"{scope}.{part}", x) for part in ("query", "key", "value"))
    new_keys = [rotate(key[:, g * size : (g + 1) * size], position) for g in range(kv_heads)]
    keys = np.concatenate([keys, np.stack(new_keys, 1)[:, :, None]], 2)
    cached = np.concatenate([cached, value.reshape(-1, kv_heads, 1, size)], 2)
    parts = []
    for head in range(heads):
        group = head // (heads // kv_heads)
        q = rotate(query[:, head * size : (head + 1) * size], position)
        scores = np.einsum("bd,btd->bt", q, keys[:, group]) / sqrt(size)
        parts.append(np.einsum("bt,btd->bd", softmax(np.where(mask == 1, scores, -np.inf)), cached[:, group]))
    return [linear(w, f"{scope}.output", np.concatenate(parts, -1)), keys, cached]


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_llama_step_is_grouped_query_attention_with_rotary_positions(small, feed, run, kv_heads):
    model = small("llama-decoder-step", batch=2, kv_heads=kv_heads)
    values, w = feed(model, 3), weights_of(model)
    values["attention_mask"][:, :2] = 0
    x = w["embedding"][values["input_ids"][:, 0]]
    caches = []
    for layer in range(2):
        scope = f"layer{layer}"
        attended, *cache = llama_attention(
            w, f"{scope}.attention", rms_norm(w, f"{scope}.attention.norm", x), values, layer
        )
        x, caches = x + attended, caches + cache
        inner = rms_norm(w, f"{scope}.mlp.norm", x)
        gate = linear(w, f"{scope}.mlp.gate", inner)
        x = x + linear(w, f"{scope}.mlp.down", gate * sigmoid(gate) * linear(w, f"{scope}.mlp.up", inner))
    logits, *present = run(model, values)
    close(logits[:, 0], linear(w, "lm_head", rms_norm(w, "norm", x)))
    for found, expected in zip(present, caches, strict=True):
        close(found, expected)


def test_llama_step_without_a_mask_reads_every_cached_token(small, feed, run):
    with_mask, without = small("llama-decoder-step"), small("llama-decoder-step", mask=False)
    values = feed(with_mask, 4)
    bare = {name: value for name, value in values.items() if name != "attention_mask"}
    close(run(without, bare)[0], run(with_mask, values)[0])
