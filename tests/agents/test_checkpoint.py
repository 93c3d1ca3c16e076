"""Checkpoints that are damaged, or do not say what they hold, are refused in a sentence."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlflow.errors import ModelError

torch = pytest.importorskip("torch", reason="torch is not installed; pip install 'rlflow[rl]'")


def checkpoint() -> Any:
    from rlflow.agents.torch_state import weights_of
    from rlflow.agents.xrlflow.config import TrainConfig
    from rlflow.agents.xrlflow.trained import PolicyCheckpoint
    from rlflow.nn.policy import make_policy
    from rlflow.nn.policy_config import PolicyConfig
    from rlflow.nn.token_vocabulary import TokenVocabulary

    form, words = PolicyConfig(hidden=4, layers=1, heads=2), TokenVocabulary(("Relu",), ("relu-twice",))
    return PolicyCheckpoint(TrainConfig(policy=form), words, weights_of(make_policy(form, words, 0)))


def with_weight(**changed: Any) -> Any:
    found = checkpoint()
    name = sorted(found.weights)[0]
    found.weights[name] = changed["change"](found.weights[name])
    return found


def with_policy(**sizes: Any) -> Any:
    found = checkpoint()
    policy = dataclasses.replace(found.config.policy, **sizes)
    return dataclasses.replace(found, config=dataclasses.replace(found.config, policy=policy))


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (with_weight(change=lambda array: array * np.nan), "holds weights that are not finite"),
        (with_weight(change=lambda array: array[..., None]), "do not fit its configuration"),
        (with_policy(hidden=8), "do not fit its configuration"),
        (with_policy(hidden=10**9), "hidden is 1000000000"),
        (with_policy(layers=0), "layers is 0"),
        (with_policy(heads="two"), "heads is 'two'"),
        (with_policy(message="gossip"), "gossip"),
        (dataclasses.replace(checkpoint(), card={"x": "y"}), ""),
    ],
)
def test_a_checkpoint_is_refused_in_a_sentence(broken: Any, sentence: str, tmp_path: Path) -> None:
    from rlflow.agents.xrlflow.trained import PolicyCheckpoint

    path = tmp_path / "agent.npz"
    broken.save(path)
    for network in (PolicyCheckpoint.policy, PolicyCheckpoint.native):
        if not sentence:  # the one that is sound
            assert network(PolicyCheckpoint.load(path)) is not None
            continue
        with pytest.raises(ModelError, match=sentence) as raised:
            network(PolicyCheckpoint.load(path))
        assert len(str(raised.value)) < 600


def test_a_damaged_archive_is_not_repeated_in_the_sentence(tmp_path: Path) -> None:
    """Found by fuzzing: the archive reader quotes the whole directory where the name of a member is damaged."""
    from rlflow.agents.xrlflow.trained import PolicyCheckpoint

    path = tmp_path / "agent.npz"
    checkpoint().save(path)
    data = bytearray(path.read_bytes())
    at = data.index(b"meta.json") - 4
    data[at : at + 2] = b"\xff\x7f"  # the name's length in the local header
    path.write_bytes(bytes(data))
    with pytest.raises(ModelError, match="is not a checkpoint of an agent") as raised:
        PolicyCheckpoint.load(path)
    assert len(str(raised.value)) < 600
