"""Levin tree search over chains of rewrites, by a policy of weights; ``rlflow.agents.chain_lessons`` trains it."""
