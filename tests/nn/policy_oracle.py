"""The policy's network once more, in numpy and float64, node by node: what the core is compared with."""

from __future__ import annotations

import numpy as np

from rlflow.graph.features import EDGE_COLUMNS, NODE_COLUMNS, GraphFeatures
from rlflow.nn.observation import DELTA_COLUMNS, GLOBAL_COLUMNS, Observation
from rlflow.nn.policy_config import PolicyConfig
from rlflow.nn.token_vocabulary import TokenVocabulary

Weights = dict[str, np.ndarray]


def shapes(config: PolicyConfig, words: TokenVocabulary) -> dict[str, tuple[int, ...]]:
    """Of every weight, by PyTorch's names."""
    h, rules = config.hidden, config.rule_size if config.rule_embedding else 0
    known = h + 1 if config.needs_children else 2 * h + len(DELTA_COLUMNS)
    found: dict[str, tuple[int, ...]] = {
        "graph.op.weight": (1 + len(words.ops), h),
        "graph.dtype.weight": (32, h),
        "score.weight": (1, h),
        **linear("graph.feature", h, len(NODE_COLUMNS)),
        **linear("graph.pool.0", h, 2 * h),
        **linear("state.0", h, h + len(GLOBAL_COLUMNS)),
        **linear("candidate.0", h, h + known + rules),
        **linear("candidate.2", h, h),
        **linear("value.0", h, 3 * h),
        **linear("value.2", 1, h),
        **{f"graph.norm.{part}": (h,) for part in ("weight", "bias")},
    }
    if config.rule_embedding:
        found["rule.weight"] = (2 + len(words.rules), config.rule_size)
    if config.prior:
        found["prior"] = ()
    for layer in (f"graph.layers.{i}" for i in range(config.layers)):
        found |= {f"{layer}.norm.{part}": (h,) for part in ("weight", "bias")}
        found |= linear(f"{layer}.update.0", h, 3 * h) | linear(f"{layer}.update.2", h, h)
        for way in (f"{layer}.down", f"{layer}.up"):
            found |= linear(f"{way}.send", h, h)
            found |= {f"{way}.receive.weight": (h, h), f"{way}.along.weight": (h, len(EDGE_COLUMNS))}
            if config.message == "attention":
                found[f"{way}.score"] = (config.heads, h // config.heads)
    return found


def linear(name: str, out: int, into: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def random_weights(config: PolicyConfig, words: TokenVocabulary, seed: int) -> Weights:
    """Numbers of a size at which no part is lost beside another."""
    rng = np.random.default_rng(seed)
    return {
        name: np.asarray(rng.standard_normal(shape) / np.sqrt(shape[-1] if len(shape) > 1 else 2.0), dtype=np.float32)
        for name, shape in shapes(config, words).items()
    }


class Oracle:
    """``scores(seen)`` as :class:`rlflow.nn.native_policy.NativePolicy` has it."""

    def __init__(self, config: PolicyConfig, words: TokenVocabulary, weights: Weights) -> None:
        self.config, self.op_rows = config, words.op_rows
        self.w = {name: array.astype(np.float64) for name, array in weights.items()}

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        y = x @ self.w[f"{name}.weight"].T
        return y + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else y

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
        return scaled * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def messages(self, way: str, h: np.ndarray, ends: tuple[np.ndarray, np.ndarray], edge: np.ndarray) -> np.ndarray:
        sender, receiver = ends
        sent, received = self.linear(f"{way}.send", h), self.linear(f"{way}.receive", h)
        along = self.linear(f"{way}.along", edge)
        out, size = np.zeros_like(h), self.config.hidden // self.config.heads
        for node in range(len(h)):
            edges = np.flatnonzero(receiver == node)
            if len(edges) == 0:
                continue
            value = sent[sender[edges]] + along[edges]
            heard = value + received[node]
            if self.config.message != "attention":
                total = np.maximum(heard, 0).sum(0)
                out[node] = total / len(edges) if self.config.message == "mean" else total
                continue
            for head in range(self.config.heads):
                part = slice(head * size, (head + 1) * size)
                score = (
                    np.where(heard[:, part] > 0, heard[:, part], 0.2 * heard[:, part]) @ self.w[f"{way}.score"][head]
                )
                weight = np.exp(score - score.max())
                out[node, part] = (weight / weight.sum()) @ value[:, part]
        return out

    def encode(self, graph: GraphFeatures) -> tuple[np.ndarray, np.ndarray]:
        dtype = np.clip(graph.dtype, 0, 31)
        h = self.w["graph.op.weight"][self.op_rows[graph.op]] + self.w["graph.dtype.weight"][dtype]
        h = h + self.linear("graph.feature", graph.node.astype(np.float64))
        edge = graph.edge.astype(np.float64)
        for layer in (f"graph.layers.{i}" for i in range(self.config.layers)):
            known = self.norm(f"{layer}.norm", h)
            below = self.messages(f"{layer}.down", known, (graph.source, graph.target), edge)
            above = self.messages(f"{layer}.up", known, (graph.target, graph.source), edge)
            first = np.maximum(self.linear(f"{layer}.update.0", np.hstack((known, below, above))), 0)
            h = h + self.linear(f"{layer}.update.2", first)
        h = self.norm("graph.norm", h)
        return h, np.maximum(self.linear("graph.pool.0", pooled(h)), 0)

    def scores(self, seen: Observation) -> tuple[np.ndarray, float]:
        nodes, graph = self.encode(seen.graph)
        state = np.maximum(self.linear("state.0", np.concatenate((graph, seen.globals))), 0)
        rows = np.array([self.candidate(seen, k, state, nodes) for k in range(seen.candidates)])
        logits = rows @ self.w["score.weight"][0]
        if self.config.prior:
            logits = logits + self.w["prior"] * seen.delta[:, DELTA_COLUMNS.index("part of the largest gain")]
        hidden = np.maximum(self.linear("value.0", np.concatenate((state, pooled(rows)))), 0)
        return logits, float(self.linear("value.2", hidden)[0])

    def candidate(self, seen: Observation, k: int, state: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        if self.config.needs_children:
            known = [self.encode(seen.children[k])[1], seen.delta[k, -1:]]
        else:
            known = [pooled(nodes[seen.touched[seen.touched_by == k]]), seen.delta[k]]
        if self.config.rule_embedding:
            table = self.w["rule.weight"]
            known.append(table[1:].mean(0) if seen.rule[k] == 1 else table[seen.rule[k]])
        first = np.maximum(self.linear("candidate.0", np.concatenate((state, *known))), 0)
        return np.maximum(self.linear("candidate.2", first), 0)


def pooled(rows: np.ndarray) -> np.ndarray:
    """Mean and maximum; zeros of none."""
    return np.concatenate((rows.mean(0), rows.max(0))) if len(rows) else np.zeros(2 * rows.shape[1])
