"""Launches kernels of our own on the host, one at a time, between guarded pages (``fake/blocks.h``)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

MAX_OUTS, MAX_INS, MAX_SIZES = 4, 14, 3


class KernelHost:
    """The kernels of one shared object."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.fake_take.restype = ctypes.c_void_p
        self._library.fake_take.argtypes = [ctypes.c_size_t, ctypes.c_int]
        self._library.fake_give.argtypes = [ctypes.c_void_p]
        self._library.fake_launch.restype = ctypes.c_char_p

    def fault(
        self,
        kernel: str,
        fixed: Sequence[int],
        ins: list[Any],
        outs: list[Any],
        launch: tuple[int, int, str],
        at_end: bool,
        sizes: Sequence[int] = (),
    ) -> str:
        """Launches once; the results are written into ``outs``. What went wrong, or nothing."""
        held = [self._library.fake_take(array.nbytes, at_end) for array in (*outs, *ins)]
        try:
            for address, array in zip(held[len(outs) :], ins, strict=True):
                packed = np.ascontiguousarray(array)
                ctypes.memmove(address, packed.ctypes.data, packed.nbytes)
            empty = [None] * (MAX_OUTS - len(outs)), [None] * (MAX_INS - len(ins))
            addresses = [*held[: len(outs)], *empty[0], *held[len(outs) :], *empty[1]]
            addresses += [*sizes, *[0] * (MAX_SIZES - len(sizes))]  # a pointer is as wide as a long long
            pointers = (ctypes.c_void_p * len(addresses))(*addresses)
            numbers = (ctypes.c_longlong * len(fixed))(*fixed)
            grid, threads, order = launch
            said = self._library.fake_launch(
                kernel.encode(), numbers, pointers, ctypes.c_uint(grid), ctypes.c_uint(threads), order.encode()
            )
            for address, array in zip(held, outs, strict=False):
                ctypes.memmove(array.ctypes.data, address, array.nbytes)
            return str(said.decode())
        finally:
            for address in held:
                self._library.fake_give(address)
