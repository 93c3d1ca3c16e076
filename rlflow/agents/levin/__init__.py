"""Levin tree search over chains of rewrites, by a policy that needs no network: ``--search levin``."""
