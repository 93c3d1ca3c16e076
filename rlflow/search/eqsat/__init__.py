"""Equality saturation."""
