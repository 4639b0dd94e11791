"""Proofs before data: when information can flow from one atom to another, and equal programs."""

from edgewise.flow.equality import equals
from edgewise.flow.reach import Reach, is_causal, reaches

__all__ = ["Reach", "equals", "is_causal", "reaches"]
