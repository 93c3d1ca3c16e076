"""Frames: what is sent arrives, what is no frame is refused in a sentence, and nobody waits for ever."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlflow.errors import RlflowError
from rlflow.splitting import frames
from rlflow.splitting.frames import BrokenConnection, Connection, Frame

START = struct.Struct("<4sIQ")


@pytest.fixture
def pair() -> Iterator[tuple[Connection, Connection]]:
    one, two = socket.socketpair()
    links = Connection(one, "The first"), Connection(two, "The second")
    yield links
    for link in links:
        link.close()


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=20),
        st.sampled_from(["bool", "uint8", "int8", "int32", "int64", "uint64", "float16", "float32", "float64"]).flatmap(
            lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
        ),
        max_size=4,
    )
)
def test_what_is_sent_arrives(tensors: dict[str, np.ndarray]) -> None:
    one, two = socket.socketpair()
    left, right = Connection(one, "left"), Connection(two, "right")
    try:
        left.send(Frame("run", {"id": 3}, tensors), 5.0)
        found = right.receive(5.0)
        assert (found.kind, found.values, list(found.tensors)) == ("run", {"id": 3}, list(tensors))
        for name, array in tensors.items():
            assert found.tensors[name].dtype == array.dtype
            assert found.tensors[name].shape == array.shape
            assert found.tensors[name].tobytes() == array.tobytes()
    finally:
        left.close()
        right.close()


def test_large_frames_pass_while_both_ends_send(pair: tuple[Connection, Connection]) -> None:
    big = np.arange(1 << 20, dtype=np.float32)
    sender = threading.Thread(target=lambda: pair[0].send(Frame("a", {}, {"x": big}), 10.0))
    other = threading.Thread(target=lambda: pair[1].send(Frame("b", {}, {"x": big}), 10.0))
    sender.start(), other.start()
    first, second = pair[1].receive(10.0), pair[0].receive(10.0)
    sender.join(), other.join()
    assert np.array_equal(first.tensors["x"], big)
    assert np.array_equal(second.tensors["x"], big)


def header(**changes: object) -> bytes:
    tensor = {"name": "x", "dtype": "float32", "shape": [2]}
    return json.dumps({"kind": "run", "values": {}, "tensors": [{**tensor, **changes}]}).encode()


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "no frame"),
        (START.pack(b"RLF1", 1 << 30, 0), "no frame"),
        (START.pack(b"RLF1", 10, 1 << 60), "no frame"),
        (START.pack(b"RLF1", 3, 0) + b"{]}", "cannot be read"),
        (START.pack(b"RLF1", 2, 0) + b"[]", "cannot be read"),
        (START.pack(b"RLF1", 2, 0) + b"\xff\xfe", "cannot be read"),
        (START.pack(b"RLF1", len(header()), 9) + header(), "its tensors take 8 bytes, and 9 follow"),
        (START.pack(b"RLF1", len(header(shape=[-2])), 8) + header(shape=[-2]), "make no sense"),
        (START.pack(b"RLF1", len(header(shape=[1e9])), 8) + header(shape=[1e9]), "make no sense"),
        (START.pack(b"RLF1", len(header(shape=[True])), 8) + header(shape=[True]), "make no sense"),
        (START.pack(b"RLF1", len(header(shape=[1 << 47] * 3)), 8) + header(shape=[1 << 47] * 3), "and 8 follow"),
        (START.pack(b"RLF1", len(header(shape=[1] * 40)), 8) + header(shape=[1] * 40), "too long"),
        (START.pack(b"RLF1", len(header(dtype="object")), 8) + header(dtype="object"), "cannot be read"),
        (START.pack(b"RLF1", len(header(name="x" * 20_000)), 8) + header(name="x" * 20_000), "too long"),
        (START.pack(b"RLF1", len(header(more=1)), 8) + header(more=1), "too long"),
        (START.pack(b"RLF1", 40, 0) + b"{", "closed"),
        (b"RLF1", "closed"),
    ],
)
def test_what_is_no_frame_is_refused(raw: bytes, part: str) -> None:
    one, two = socket.socketpair()
    link = Connection(two, "The other end")
    try:
        one.sendall(raw)
        one.close()
        with pytest.raises(BrokenConnection, match=part) as caught:
            link.receive(2.0)
        assert str(caught.value).startswith("The other end")
    finally:
        link.close()


def test_silence_ends_with_the_time(pair: tuple[Connection, Connection]) -> None:
    with pytest.raises(BrokenConnection, match=r"did not answer within 0\.05 s"):
        pair[0].receive(0.05)


def test_a_frame_that_has_begun_must_go_on() -> None:
    one, two = socket.socketpair()
    link = Connection(two, "The other end")
    one.sendall(b"RL")
    with pytest.raises(BrokenConnection, match=r"did not answer within 0\.1 s"):
        link.receive(0.1, idle=float("inf"))
    link.close(), one.close()


def test_objects_are_not_sent(pair: tuple[Connection, Connection]) -> None:
    with pytest.raises(BrokenConnection, match="type object"):
        pair[0].send(Frame("run", {}, {"x": np.array([{}], object)}))


def greeted(first: bytes, second: bytes) -> list[BaseException | None]:
    """What comes of a greeting with these tokens, at the worker and at the coordinator."""
    one, two = socket.socketpair()
    ends = [(Connection(one, "The coordinator"), first, True), (Connection(two, "The worker"), second, False)]
    found: list[BaseException | None] = [None, None]

    def greet(k: int) -> None:
        link, token, as_worker = ends[k]
        try:
            frames.greet(link, token, 5.0, as_worker=as_worker)
        except RlflowError as error:
            found[k] = error

    threads = [threading.Thread(target=greet, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for link, *_ in ends:
        link.close()
    return found


def test_both_ends_need_the_token() -> None:
    assert greeted(b"the same secret!", b"the same secret!") == [None, None]
    wrong = greeted(b"the same secret!", b"another secret!!")
    assert all("does not know the token" in str(one) for one in wrong)


def test_a_proof_cannot_be_sent_back() -> None:
    """A stranger who repeats what the worker says knows nothing."""
    one, two = socket.socketpair()
    worker, stranger = Connection(one, "The stranger"), Connection(two, "The worker")
    failed: list[str] = []

    def work() -> None:
        try:
            frames.greet(worker, b"a secret of sixteen", 5.0, as_worker=True)
        except BrokenConnection as error:
            failed.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(2):
        stranger.send(stranger.receive(5.0))
    thread.join()
    assert "does not know the token" in failed[0]
    worker.close(), stranger.close()


def test_before_the_greeting_no_tensor_is_taken() -> None:
    one, two = socket.socketpair()
    worker, stranger = Connection(one, "The stranger"), Connection(two, "The worker")
    stranger.send(Frame("hello", {"number": "0"}, {"x": np.zeros(4, np.float32)}))
    with pytest.raises(BrokenConnection, match="refused"):
        frames.greet(worker, b"a secret of sixteen", 5.0, as_worker=True)
    worker.close(), stranger.close()


@pytest.mark.parametrize(("content", "part"), [(b"short\n", "5 characters"), (None, "does not exist")])
def test_tokens_that_are_none(tmp_path: Path, content: bytes | None, part: str) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RlflowError, match=part):
        frames.token_of(str(path))
