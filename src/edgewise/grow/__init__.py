"""Incremental decoding: rows are appended to a causal model, with a KV cache."""

from edgewise.grow.by_values import GrowingByValues
from edgewise.grow.growing import Growing

__all__ = ["Growing", "GrowingByValues"]
