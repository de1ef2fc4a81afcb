"""Provides the model and the run of one round that the tests of this folder share (tiny.py)."""

from tiny import model, small_run, tiny_model  # noqa: F401
