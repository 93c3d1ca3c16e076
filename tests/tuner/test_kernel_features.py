"""What cost models see of our own kernels' programs."""

from __future__ import annotations

import numpy as np
import pytest

from rlflow.tuner import TunedSubgraph
from rlflow.tuner.kernel_engine import space_of
from rlflow.tuner.kernel_features import WinogradSizes, features, second_level_cache, sizes_of, winograd_cut

TWO_MEGABYTES = 2 << 20


def subgraph(size: int, channels: int, kind: str = "convolution") -> TunedSubgraph:
    sizes = sizes_of((channels, channels), (1, channels, size, size), 16)
    return TunedSubgraph(f"{size}x{channels}", space_of(kind), 0.0, family=kind, sizes=sizes)


@pytest.mark.parametrize(
    ("tiles", "channels", "chunk", "part", "expected"),
    [
        # 14² by tiles of 4: 16 tiles; 256 channels are two parts of 128 by default
        (16, 256, 12, 0, (8, 2, 128, 2, False)),
        (16, 256, 576, 512, (16, 1, 256, 1, False)),
        # three parts of 96 would be 288 channels: the kernel makes them equal, in whole blocks
        (16, 256, 24, 96, (16, 1, 96, 3, False)),
        # 56² by tiles of 4: 196 tiles; the transformed weights of 64 channels stay in the cache where there are chunks
        (196, 64, 48, 64, (40, 5, 64, 1, True)),
        (196, 64, 576, 64, (196, 1, 64, 1, False)),
        # by the caches: two thirds of 2 MB, less the weights of a part, over what a tile takes
        (196, 64, 0, 64, (66, 3, 64, 1, True)),
    ],
)
def test_the_cut_is_the_kernels(tiles, channels, chunk, part, expected) -> None:
    sizes = WinogradSizes(tiles, 36, channels, channels, 16, TWO_MEGABYTES)
    assert winograd_cut(sizes, chunk, part) == expected


def test_features_are_finite_and_tell_programs_apart() -> None:
    one = subgraph(28, 128)
    programs = list(one.space.programs())
    found = features(one, programs)
    assert np.isfinite(found).all()
    assert len(np.unique(found, axis=0)) == len(programs)
    assert found.shape[1] > one.space.features(programs).shape[1] + len(one.sizes)


def test_what_cuts_the_work_alike_looks_alike_beside_the_parameters() -> None:
    """16 tiles in chunks of at most 24 or 576 are one chunk."""
    one = subgraph(14, 256)
    plain = one.space.features(list(one.space.programs())).shape[1]
    sketch = [each.name for each in one.space.sketches].index("winograd-4x4")
    chunks = one.space.sketches[sketch].steps[0].values
    programs = [(sketch, (chunks.index(chunk), 0)) for chunk in (24, 576, 12)]
    alike, other, apart = features(one, [program_of(each) for each in programs])[:, plain:]
    assert (alike == other).all()
    assert (alike != apart).any()


def program_of(pair):
    from rlflow.tuner import TensorProgram

    return TensorProgram(*pair)


def test_a_window_of_one_row_is_cut_along_it_alone() -> None:
    """1×7 by tiles of 2: 8 points, 28 rows of 14 tiles."""
    sizes = sizes_of((64, 64, 1, 7), (1, 64, 28, 28), 16)
    one = TunedSubgraph("x", space_of("convolution-7"), 0.0, family="convolution-7", sizes=sizes)
    found = features(one, list(one.space.programs()))
    plain = one.space.features([]).shape[1] + len(sizes)
    tiles, all_weights = found[1:, plain + 4], found[1:, plain + 9]
    assert np.exp2(tiles) == pytest.approx(28 * 14)
    assert np.exp2(all_weights) == pytest.approx(8 * 64 * 64 * 4 / sizes[-1])


@pytest.mark.parametrize("kind", ["norm", "product", "depthwise", "grouped", "convolution-5x5"])
def test_other_kinds_have_their_sizes(kind: str) -> None:
    one = TunedSubgraph("x", space_of(kind), 0.0, family=kind, sizes=(768, 1, 0, 1, 128, 768, 16, 1 << 20))
    programs = list(one.space.programs())
    found = features(one, programs)
    assert found.shape == (len(programs), one.space.features(programs).shape[1] + 8)


@pytest.mark.parametrize("sizes", [(), (0,) * 8, (1,) * 8, (1 << 40,) * 8])
def test_sizes_of_a_file_that_cannot_be_are_no_trouble(sizes) -> None:
    one = TunedSubgraph("x", space_of("convolution"), 0.0, family="convolution", sizes=sizes)
    assert np.isfinite(features(one, list(one.space.programs()))).all()


def test_an_unknown_shape_says_nothing() -> None:
    assert sizes_of((64, 64), None, 16) == ()
    assert sizes_of((64, 64), (-1, 64, 56, 56), 16) == ()
    assert sizes_of((64, 64), (1, 64, 56, 56), 16)[:-1] == (64, 64, 1, 64, 56, 56, 16)


def test_the_cache_is_within_the_kernels_bounds(tmp_path, monkeypatch) -> None:
    file = tmp_path / "size"
    monkeypatch.setattr("rlflow.tuner.kernel_features._CACHE", file)
    for text, expected in [
        ("512K\n", 512 << 10),
        ("1M", 1 << 20),
        ("64M", 2 << 20),
        ("64K", 256 << 10),
        ("?", 512 << 10),
    ]:
        file.write_text(text)
        assert second_level_cache() == expected
    file.unlink()
    assert second_level_cache() == 512 << 10
