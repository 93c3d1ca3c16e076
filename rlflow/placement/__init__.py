"""Decisions for all nodes of a graph at once."""
