"""The final comparison of whole models: the original against the best graphs of a search, by the clock.

:func:`rlflow.race.gate.choose` runs it: interleaved blocks of fresh sessions (:mod:`rlflow.race.blocks`), a test that
may be looked at several times (:mod:`rlflow.race.sequential`), what earlier comparisons found
(:mod:`rlflow.race.evidence`), and a :class:`~rlflow.race.decision.GateDecision` in the end.
"""
