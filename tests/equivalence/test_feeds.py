"""Random and given inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlflow.equivalence import for_single_input, load_input_data, make_inputs
from rlflow.errors import UsageError
from rlflow.runtime import TensorInfo

TOKENS = TensorInfo("ids", "int64", ("N", 5))
MASK = TensorInfo("mask", "bool", ("N", 5))
IMAGE = TensorInfo("image", "float32", (1, 3, None))
DIMS = {"N": 4, "image.2": 7}


class TestRandom:
    def test_shapes_types_and_ranges(self) -> None:
        feeds = make_inputs([TOKENS, MASK, IMAGE], 0, {"ids": (3, 9)}, dims=DIMS)
        assert list(feeds) == ["ids", "mask", "image"]
        assert feeds["ids"].shape == (4, 5)
        assert feeds["ids"].dtype == np.int64
        assert 3 <= feeds["ids"].min() <= feeds["ids"].max() <= 9
        assert feeds["mask"].dtype == bool
        assert feeds["image"].shape == (1, 3, 7)
        assert feeds["image"].dtype == np.float32

    def test_both_ends_of_a_range_occur(self) -> None:
        ids = make_inputs([TensorInfo("ids", "int32", (500,))], 0, {"ids": (-1, 1)})["ids"]
        assert set(ids.tolist()) == {-1, 0, 1}

    def test_integers_of_unknown_range_are_zero_or_one(self) -> None:
        ids = make_inputs([TensorInfo("ids", "uint8", (100,))], 0)["ids"]
        assert set(ids.tolist()) == {0, 1}

    def test_floats_are_standard_normal_or_in_their_range(self) -> None:
        info = TensorInfo("x", "float32", (4000,))
        x = make_inputs([info], 1)["x"]
        assert abs(x.mean()) < 0.1
        assert abs(x.std() - 1) < 0.1
        y = make_inputs([info], 1, {"x": (2.0, 3.0)})["x"]
        assert 2.0 <= y.min() < 2.1 < 2.9 < y.max() <= 3.0

    def test_the_seed_decides(self) -> None:
        one, two, other = (make_inputs([IMAGE], seed, dims=DIMS)["image"] for seed in (1, 1, 2))
        np.testing.assert_array_equal(one, two)
        assert not np.array_equal(one, other)

    def test_giving_one_input_does_not_change_the_others(self) -> None:
        alone = make_inputs([TOKENS, IMAGE], 5, dims=DIMS)["image"]
        given = make_inputs([TOKENS, IMAGE], 5, user_data={"ids": np.zeros((4, 5), np.int64)}, dims=DIMS)["image"]
        np.testing.assert_array_equal(alone, given)

    def test_scalars(self) -> None:
        assert make_inputs([TensorInfo("s", "float64", ())], 0)["s"].shape == ()

    @pytest.mark.parametrize(
        ("info", "words"),
        [
            (TensorInfo("t", "string", (1,)), "--input-data"),
            (TensorInfo("t", "seq(tensor(float))", (), is_tensor=False), "not a tensor"),
            (TensorInfo("t", "float32", ("batch",)), "--dim batch=1"),
            (TensorInfo("t", "float32", (2, None)), "--dim t.1=1"),
            (TensorInfo("t", "float8e4m3fn", (2,)), "No random input"),
        ],
    )
    def test_what_cannot_be_made_up_is_said(self, info: TensorInfo, words: str) -> None:
        with pytest.raises(UsageError, match=words):
            make_inputs([info], 0)

    def test_an_empty_range(self) -> None:
        with pytest.raises(UsageError, match="empty"):
            make_inputs([TensorInfo("ids", "int64", (2,))], 0, {"ids": (3, 1)})

    @pytest.mark.parametrize(
        ("shape", "end"),
        [((2**31, 2**31), "does not have."), (("N", 2**31), "does not have; give smaller sizes with --dim.")],
    )
    def test_what_no_machine_holds_is_not_drawn(self, shape: tuple[int | str, ...], end: str) -> None:
        with pytest.raises(UsageError, match=r"'x' of the shape \[2147483648, 2147483648\] would take") as caught:
            make_inputs([TensorInfo("x", "float32", shape)], 0, dims={"N": 2**31})
        assert str(caught.value).endswith(end)


class TestGiven:
    def test_given_data_bind_the_symbols_of_other_inputs(self) -> None:
        feeds = make_inputs([MASK, TOKENS], 0, user_data={"ids": np.zeros((6, 5), np.int32)})
        assert feeds["mask"].shape == (6, 5)
        assert feeds["ids"].dtype == np.int64

    @pytest.mark.parametrize(
        ("name", "array", "words"),
        [
            ("nobody", np.zeros(1), "no input 'nobody'; its inputs are ids"),
            ("ids", np.zeros((4,), np.int64), "the model expects"),
            ("ids", np.zeros((4, 6), np.int64), "have 6 in dimension 1"),
            ("ids", np.zeros((4, 5), np.float32), "are float32; the model expects int64"),
            ("ids", np.full((4, 5), 2**63, np.uint64), "are uint64"),
        ],
    )
    def test_bad_data(self, name: str, array: np.ndarray, words: str) -> None:
        with pytest.raises(UsageError, match=words):
            make_inputs([TOKENS], 0, user_data={name: array}, dims=DIMS)

    def test_data_against_a_dimension_that_was_said(self) -> None:
        with pytest.raises(UsageError, match="where N is 3"):
            make_inputs([TOKENS], 0, user_data={"ids": np.zeros((4, 5), np.int64)}, dims={"N": 3})

    def test_strings_can_be_given(self) -> None:
        feeds = make_inputs([TensorInfo("t", "string", (2,))], 0, user_data={"t": np.array(["a", "b"])})
        assert feeds["t"].dtype == object


class TestFiles:
    def test_npz_and_named_npy(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "all.npz", a=np.arange(3), b=np.ones(2))
        np.save(tmp_path / "c.npy", np.zeros(4))
        found = load_input_data([tmp_path / "all.npz", f"c={tmp_path / 'c.npy'}"])
        assert {name: array.shape for name, array in found.items()} == {"a": (3,), "b": (2,), "c": (4,)}

    def test_a_lone_array_belongs_to_the_only_input(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.zeros((4, 5), np.int64))
        data = load_input_data([tmp_path / "x.npy"])
        assert list(for_single_input(data, [TOKENS])) == ["ids"]
        with pytest.raises(UsageError, match="2 inputs"):
            for_single_input(data, [TOKENS, MASK])

    @pytest.mark.parametrize("source", ["absent.npy", "x=absent.npz", "data.txt"])
    def test_bad_names(self, source: str) -> None:
        with pytest.raises(UsageError, match=r"does not exist|neither"):
            load_input_data([source])

    @pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04 broken"])
    @pytest.mark.parametrize("suffix", ["npy", "npz"])
    def test_bad_contents(self, tmp_path: Path, content: bytes, suffix: str) -> None:
        path = tmp_path / f"x.{suffix}"
        path.write_bytes(content)
        with pytest.raises(UsageError, match="cannot be read"):
            load_input_data([path])

    def test_pickles_are_not_opened(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.array([{"a": 1}], object), allow_pickle=True)
        with pytest.raises(UsageError, match="cannot be read"):
            load_input_data([tmp_path / "x.npy"])

    def test_twice_the_same(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.zeros(1))
        with pytest.raises(UsageError, match="twice"):
            load_input_data([f"a={tmp_path / 'x.npy'}"] * 2)

    def test_the_same_name_in_two_archives(self, tmp_path: Path) -> None:
        for name in ("one", "two"):
            np.savez(tmp_path / f"{name}.npz", a=np.zeros(1))
        with pytest.raises(UsageError, match="twice for 'a'"):
            load_input_data([tmp_path / "one.npz", tmp_path / "two.npz"])

    def test_a_damaged_member(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npz"
        np.savez_compressed(path, a=np.arange(1000))
        raw = bytearray(path.read_bytes())
        raw[60:80] = b"\xff" * 20
        path.write_bytes(raw)
        with pytest.raises(UsageError, match=r"x\.npz cannot be read"):
            load_input_data([path])
