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


def layer_norm(w: Weights, name: str, x: np.ndarray, epsilon: float = 1e-12) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * w[f"{name}.weight"] + w[f"{name}.bias"]


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(erf)(x / sqrt(2)))


def attention(w: Weights, scope: str, x: np.ndarray, memory: np.ndarray, heads: int, seen: np.ndarray) -> np.ndarray:
    """``seen`` [batch or 1, rows, columns]: whether a row may read a column."""
    query = linear(w, f"{scope}.query", x)
    key, value = linear(w, f"{scope}.key", memory), linear(w, f"{scope}.value", memory)
    size = x.shape[-1] // heads
    context = np.empty_like(query)
    for head in range(heads):
        columns = slice(head * size, (head + 1) * size)
        scores = query[..., columns] @ key[..., columns].swapaxes(1, 2) / sqrt(size)
        context[..., columns] = softmax(np.where(seen, scores, -np.inf)) @ value[..., columns]
    return linear(w, f"{scope}.output", context)


def bert_layer(w: Weights, scope: str, x: np.ndarray, mask: np.ndarray, heads: int) -> np.ndarray:
    attended = attention(w, f"{scope}.attention", x, x, heads, mask[:, None, :] == 1)
    x = layer_norm(w, f"{scope}.attention_norm", attended + x)
    inner = gelu(linear(w, f"{scope}.intermediate", x))
    return layer_norm(w, f"{scope}.output_norm", linear(w, f"{scope}.output", inner) + x)


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize("name", ["bert6-classifier", "bert-base"])
def test_bert_is_devlins_encoder(small, feed, run, name, opset):
    model = small(name, layers=2, batch=2, opset=opset)
    values, w = feed(model, 2), weights_of(model)
    values["attention_mask"][:, 6:] = 0
    x = w["embeddings.word"][values["input_ids"]] + w["embeddings.segment"][values["token_type_ids"]]
    x = layer_norm(w, "embeddings.norm", x + w["embeddings.position"][: x.shape[1]])
    for layer in range(2):
        x = bert_layer(w, f"layer{layer}", x, values["attention_mask"], 2)
    pooled = np.tanh(x[:, 0] @ w["pooler.weight"].T + w["pooler.bias"])
    if name == "bert-base":
        for found, expected in zip(run(model, values), (x, pooled), strict=True):
            close(found, expected)
    else:
        close(run(model, values)[0], pooled @ w["classifier.weight"].T + w["classifier.bias"])


def test_vit_is_a_pre_norm_transformer_over_patches(small, feed, run):
    model = small("vit-base", batch=2)
    values, w = feed(model, 5), weights_of(model)
    # [batch, 3, 4, 8, 4, 8] to patches [batch, 16, 3 · 8 · 8], row by row
    patches = values["input"].reshape(2, 3, 4, 8, 4, 8).transpose(0, 2, 4, 1, 3, 5).reshape(2, 16, 192)
    embedded = patches @ w["embeddings.patch.weight"].reshape(32, 192).T + w["embeddings.patch.bias"]
    first = np.broadcast_to(w["embeddings.class_token"], (2, 1, 32))
    x = np.concatenate([first, embedded], 1) + w["embeddings.position"]
    for layer in range(2):
        scope = f"layer{layer}"
        inner = layer_norm(w, f"{scope}.norm1", x, 1e-6)
        x = x + attention(w, f"{scope}.attention", inner, inner, 2, np.True_)
        inner = layer_norm(w, f"{scope}.norm2", x, 1e-6)
        x = x + linear(w, f"{scope}.mlp2", gelu(linear(w, f"{scope}.mlp1", inner)))
    close(run(model, values)[0], layer_norm(w, "norm", x, 1e-6)[:, 0] @ w["head.weight"].T + w["head.bias"])


def transducer_encoder(w: Weights, scope: str, x: np.ndarray, layers: int, seen: np.ndarray) -> np.ndarray:
    rows, hidden = x.shape[1:]
    angle = np.arange(rows)[:, None] / 10000.0 ** (2 * np.arange(hidden // 2) / hidden)
    x = x + np.concatenate([np.sin(angle), np.cos(angle)], 1)
    for layer in range(layers):
        x = layer_norm(w, f"{scope}.layer{layer}.norm1", x, 1e-5)
        x = x + attention(w, f"{scope}.layer{layer}.attention", x, x, 2, seen)
        x = layer_norm(w, f"{scope}.layer{layer}.norm2", x, 1e-5)
        inner = linear(w, f"{scope}.layer{layer}.mlp1", x)
        x = x + linear(w, f"{scope}.layer{layer}.mlp2", np.maximum(inner, 0))
    return layer_norm(w, f"{scope}.norm", x, 1e-5)


def test_transducer_joins_an_audio_and_a_causal_label_encoder(small, feed, run):
    model = small("transducer", batch=2)
    values, w = feed(model, 6), weights_of(model)
    audio = transducer_encoder(w, "audio", linear(w, "frontend", values["audio"]), 2, np.True_)
    earlier = np.tri(4, dtype=bool)[None]
    label = transducer_encoder(w, "label", w["label_embedding"][values["labels"]], 1, earlier)
    rows, columns = linear(w, "joint.audio", audio)[:, :, None], linear(w, "joint.label", label)[:, None]
    close(run(model, values)[0], np.log(softmax(linear(w, "joint.output", np.tanh(rows + columns)))))


def test_dalle_decoder_reads_earlier_tokens_and_the_text(small, feed, run):
    model = small("dalle-decoder", batch=2)
    values, w = feed(model, 7), weights_of(model)
    values["attention_mask"][:, 3:] = 0
    x = w["embeddings.token"][values["image_tokens"]] + w["embeddings.position"][:6]
    x, text = layer_norm(w, "embeddings.norm", x, 1e-5), values["text_states"].astype(np.float64)
    for layer in range(2):
        scope = f"layer{layer}"
        inner = layer_norm(w, f"{scope}.attention.norm", x, 1e-5)
        x = x + attention(w, f"{scope}.attention", inner, inner, 2, np.tri(6, dtype=bool)[None])
        inner = layer_norm(w, f"{scope}.cross_attention.norm", x, 1e-5)
        readable = values["attention_mask"][:, None, :] == 1
        x = x + attention(w, f"{scope}.cross_attention", inner, text, 2, readable)
        inner = layer_norm(w, f"{scope}.mlp.norm", x, 1e-5)
        gated = gelu(linear(w, f"{scope}.mlp.gate", inner)) * linear(w, f"{scope}.mlp.up", inner)
        x = x + linear(w, f"{scope}.mlp.down", layer_norm(w, f"{scope}.mlp.middle_norm", gated, 1e-5))
    close(run(model, values)[0], linear(w, "lm_head", layer_norm(w, "norm", x, 1e-5)))


@pytest.mark.parametrize("attend", [False, True])
def test_tasos_bert_multiplies_without_softmax(small, feed, run, attend):
    model = small("taso/bert", batch=2, attend=attend)
    values, w = feed(model, 8), weights_of(model)
    x, attentions = np.maximum(values["data"], 0).astype(np.float64), []
    for layer in range(2):
        query, key, value = ((x @ w[f"layer{layer}.{part}"]).reshape(2, 8, 4, 8) for part in ("query", "key", "value"))
        keys = "bkhd" if attend else "bdhk"  # without attend the key's rows stand where its numbers should
        logits = np.einsum(f"bqhd,{keys}->bhqk", query, key)
        attentions.append(np.einsum("bhqk,bkhd->bqhd", logits, value).reshape(16, 32))
        x = (attentions[-1] if attend else x) @ w[f"layer{layer}.output"]
    for found, expected in zip(run(model, values), [x] if attend else [x, *attentions], strict=True):
        close(found, expected)


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
