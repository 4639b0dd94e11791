"""Rows that are appended to a causal model: what is new is computed, all else is kept."""

from edgewise.grow.growing import Growing

__all__ = ["Growing"]
