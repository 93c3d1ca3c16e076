"""One task on many rules, in several processes; Ctrl-C ends it with what is known."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from rlflow.errors import ProofError
from rlflow.rewrite import Rule

T = TypeVar("T")


def default_jobs() -> int:
    """As many processes as there are cores for this one."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(
    task: Callable[[Rule], T], rules: Sequence[Rule], progress: Callable[[T], None] | None = None, jobs: int = 1
) -> list[T]:
    """``task`` of every rule, in the rules' order; fewer after Ctrl-C. Several processes begin with the dearest rules,
    so that none of these is left to end alone. Where ``jobs`` > 1, ``task`` must be importable
    by name (or a partial of such). Raises ProofError where a process died."""
    if jobs <= 1 or len(rules) <= 1:
        return _one_by_one(task, rules, progress)
    context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")
    done: dict[int, T] = {}
    pool = ProcessPoolExecutor(min(jobs, len(rules)), context, initializer=_deaf)
    try:
        futures: dict[Future[T], int] = {pool.submit(task, rules[k]): k for k in dearest_first(rules)}
        for future in as_completed(futures):
            done[futures[future]] = future.result()
            if progress:
                progress(done[futures[future]])
    except KeyboardInterrupt:
        pass
    except BrokenProcessPool as error:
        raise ProofError("a process of the prover died (out of memory, or killed); try fewer with --jobs 1") from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return [done[k] for k in sorted(done)]


def dearest_first(rules: Sequence[Rule]) -> list[int]:
    """Places of the rules, those with the longest statements first: the more is written, the more there is to draw."""
    texts = ((*rule.source, *rule.target, *rule.where, *map(str, rule.let), *map(str, rule.samples)) for rule in rules)
    written = [sum(map(len, text)) for text in texts]
    return sorted(range(len(rules)), key=lambda k: -written[k])


def _one_by_one(task: Callable[[Rule], T], rules: Sequence[Rule], progress: Callable[[T], None] | None) -> list[T]:
    done: list[T] = []
    try:
        for rule in rules:
            done.append(task(rule))
            if progress:
                progress(done[-1])
    except KeyboardInterrupt:
        pass
    return done


def _deaf() -> None:
    """Ctrl-C is the parent's to hear."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
