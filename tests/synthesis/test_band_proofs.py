"""The shares of bands are proved by z3, from the code itself; what is a little wrong is not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from rlflow.cli import main
from rlflow.footprint import rowmaps
from rlflow.footprint.rowmaps import Blending, Repeating, Share, Sliding, Spreading
from rlflow.synthesis import band_proofs as proofs

pytest.importorskip("z3")


def test_all_shares_are_proved_on_every_way_through_the_code() -> None:
    found = {one.statement: one for one in proofs.band_proofs()}
    assert [str(one) for one in found.values() if not one.proved] == []
    assert found["a window"].ways == 4  # clipped at the top or not, at the bottom or not
    assert {"row by row", "a transposed window", "each row several times"} <= set(found)


def statement(name: str) -> proofs.BandProof:
    return next(one for one in proofs.band_proofs() if one.statement == name)


@dataclass(frozen=True)
class OneRowLate(Sliding):
    def share(self, first: int, end: int, height: int) -> Share | None:
        found = super().share(first, end, height)
        return found and found._replace(first=found.first + 1)


@dataclass(frozen=True)
class Unclipped(Sliding):
    def share(self, first: int, end: int, height: int) -> Share | None:
        low, high = first * self.stride - self.begin, (end - 1) * self.stride - self.begin
        return Share(max(low, 0), high + (self.kernel - 1) * self.dilation + 1, max(-low, 0), 0)


@dataclass(frozen=True)
class PaddedInside(Sliding):
    """Pads every band like the whole."""

    def share(self, first: int, end: int, height: int) -> Share | None:
        found = super().share(first, end, height)
        return found and found._replace(before=self.begin)


@dataclass(frozen=True)
class LastAdds(Spreading):
    """Forgets that rows above add to the first row of a band."""

    def share(self, first: int, end: int, height: int) -> Share | None:
        found = super().share(first, end, height)
        return found and (found._replace(first=found.first + 1) if found.end - found.first > 1 else found)


@dataclass(frozen=True)
class CountsFromTheBand(Repeating):
    def share(self, first: int, end: int, height: int) -> Share | None:
        found = super().share(first, end, height)
        return found and found._replace(before=0, after=found.after + found.before)


@dataclass(frozen=True)
class WithoutNeighbours(Blending):
    def share(self, first: int, end: int, height: int) -> Share | None:
        start, stop = first // self.factor, -(-end // self.factor)
        return Share(start, stop, first - start * self.factor, stop * self.factor - end)


@pytest.mark.parametrize(
    ("name", "false", "about"),
    [
        ("Sliding", OneRowLate, "a window"),
        ("Sliding", Unclipped, "a window"),
        ("Sliding", PaddedInside, "a window"),
        ("Spreading", LastAdds, "a transposed window"),
        ("Repeating", CountsFromTheBand, "each row several times"),
        ("Blending", WithoutNeighbours, "linear interpolation, factor 2, half_pixel"),
    ],
)
def test_a_false_share_is_contradicted(
    monkeypatch: pytest.MonkeyPatch, name: str, false: type, about: str
) -> None:
    monkeypatch.setattr(proofs, name, false)
    found = statement(about)
    assert not found.proved and "first = " in found.against


def test_what_never_makes_a_band_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowmaps.Along, "share", lambda *_: None)
    found = statement("row by row")
    assert (found.ways, found.proved) == (0, False)


def test_the_command_says_each_statement() -> None:
    result = CliRunner().invoke(main, ["rules", "prove", "--bands"])
    assert result.exit_code == 0, result.output
    assert "a window: proved; 4 ways through the code" in result.output
    assert result.output.rstrip().endswith("13 statements: 13 proved.")


def test_the_command_takes_no_rules_beside() -> None:
    result = CliRunner().invoke(main, ["rules", "prove", "--bands", "--all"])
    assert result.exit_code != 0 and "--bands proves no rules" in str(result.output) + str(result.exception)
