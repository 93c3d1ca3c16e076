"""A trained policy at work in the core: no torch, one core, the scores of :class:`rlflow.nn.policy.Policy` in float32.

Sums are rounded in another order than torch's, and on another processor in another one again, so scores agree to about
1e-6 and not bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rlflow._core import PolicyCode, PolicyNet
from rlflow.errors import UsageError
from rlflow.graph.features import GraphFeatures
from rlflow.nn.observation import Observation
from rlflow.nn.policy_config import ENCODERS, MESSAGES, PolicyConfig
from rlflow.nn.token_vocabulary import TokenVocabulary

__all__ = ["NativePolicy", "PolicyCode"]


class NativePolicy:
    """The network of a policy. ``weights``: arrays by their names in ``Policy.state_dict()``.

    Raises :class:`UsageError` for weights that do not fit the configuration and the vocabulary.
    """

    def __init__(self, config: PolicyConfig, vocabulary: TokenVocabulary, weights: Mapping[str, np.ndarray]) -> None:
        if config.encoder not in ENCODERS or config.message not in MESSAGES:
            raise UsageError(
                f"There is no encoder {config.encoder!r} with message {config.message!r}; there are "
                f"{' and '.join(ENCODERS)}, with {', '.join(MESSAGES)}."
            )
        self.config, self.vocabulary = config, vocabulary
        self._op_rows = vocabulary.op_rows.astype(np.int32)
        self._net = PolicyNet(
            hidden=config.hidden,
            layers=config.layers,
            heads=config.heads,
            ops=1 + len(vocabulary.ops),
            rules=2 + len(vocabulary.rules) if config.rule_embedding else 0,
            rule_size=config.rule_size if config.rule_embedding else 0,
            message=config.message,
            children=config.needs_children,
            prior=bool(config.prior),
            weights=weights,
        )

    def encode(self, graph: GraphFeatures, whole: bool = True) -> PolicyCode:
        """The graph after the layers, for :meth:`scores`; ``whole``: as a state's graph, not only as a candidate's."""
        rows = self._op_rows[graph.op]
        return self._net.encode(rows, graph.dtype, graph.node, graph.source, graph.target, graph.edge, whole)

    def scores(self, seen: Observation, code: PolicyCode | None = None) -> tuple[np.ndarray, float]:
        """Scores [k] float32 of the candidates, higher is likelier, and the value of the state.

        ``seen``: with embedding rows for rules (:meth:`TokenVocabulary.translate`). ``code``: of its graph, where that
        is known. Raises :class:`UsageError` for an observation without the candidates' graphs where the network reads
        them.
        """
        children: list[PolicyCode] = []
        if self.config.needs_children:
            if len(seen.children) != seen.candidates:
                raise UsageError("The encoder 'meta-graph' needs observations with every candidate's graph.")
            children = [self.encode(child, whole=False) for child in seen.children]
        return self._net.score(
            code or self.encode(seen.graph),
            seen.globals,
            seen.rule,
            seen.delta,
            seen.touched,
            seen.touched_by,
            children,
        )
