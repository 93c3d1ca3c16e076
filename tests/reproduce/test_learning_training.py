"""The training of the bench by its own command, at a toy's size: end to end, resumed, and the same again."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from rlflow import nn

pytestmark = pytest.mark.skipif(nn.available() is not None, reason="torch is not installed; pip install 'rlflow[rl]'")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "reproduce" / "learning")]
#: Steps of one update's episodes, about.
UPDATE = 200
TINY = ("--graphs", "2", "--rounds", "1", "--teacher-budget", "20x", "--judge", "gemma_step", "--start", "none")


def trained(out: Path, steps: int, *more: str) -> dict[str, bytes]:
    """All that the checkpoint holds after the command but for the seconds that it took, which are in its text."""
    import train  # from reproduce/learning

    assert train.main(["--out", str(out), "--steps", str(steps), "--seed", "3", *TINY, *more]) == 0
    with np.load(out) as found:
        parts = {name: found[name] for name in found.files}
    return {name: one if isinstance(one, bytes) else one.tobytes() for name, one in parts.items()}


def timeless(found: dict[str, bytes]) -> dict[str, bytes]:
    return {name: re.sub(rb'"seconds": [0-9.]+', b"", one) for name, one in found.items()}


def test_the_command_trains_resumes_and_repeats_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = trained(tmp_path / "whole.npz", 2 * UPDATE)
    assert len(whole) > 10
    assert f"{tmp_path / 'whole.npz'}: " in capsys.readouterr().out
    half = trained(tmp_path / "half.npz", UPDATE)
    assert timeless(half) != timeless(whole)
    # The same seed gives the same bytes, whether or not somebody stopped it in between.
    assert timeless(trained(tmp_path / "half.npz", 2 * UPDATE, "--resume")) == timeless(whole)


def test_what_is_not_of_the_training_half_is_refused(tmp_path: Path) -> None:
    import train

    with pytest.raises(SystemExit):
        train.main(["--out", str(tmp_path / "a.npz"), "--judge", "swin_t"])
    assert not list(tmp_path.iterdir())
