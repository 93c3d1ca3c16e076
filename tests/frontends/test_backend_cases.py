"""A sample of ONNX's operator cases through load and save; ``backend_cases.py`` beside this file runs all of them."""

from __future__ import annotations

import warnings

import pytest
from backend_cases import run_all

SAMPLE = 12


def check(every: int, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases divide by zero on purpose
        summary = run_all(every)
    with capsys.disabled():
        print(f"\nONNX operator cases (each {every}.): {summary}")
    assert not summary.failures
    assert summary.counts["equal as saved"] == summary.counts["passed by the runtime"]
    assert summary.counts["passed by the runtime"] * every > 1000


def test_each_twelfth_case(capsys: pytest.CaptureFixture[str]) -> None:
    check(SAMPLE, capsys)


@pytest.mark.slow
def test_all_cases(capsys: pytest.CaptureFixture[str]) -> None:
    check(1, capsys)
