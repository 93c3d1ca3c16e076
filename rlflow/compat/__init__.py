"""Faces of other tools over this one, so that their users' scripts run unchanged."""
