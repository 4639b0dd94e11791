"""Proofs before data: when information can flow from one atom to another, and equal programs."""

from edgewise.flow.differential import Counterexample, counterexample
from edgewise.flow.equality import equals
from edgewise.flow.reach import Reach, is_causal, reaches

__all__ = ["Counterexample", "Reach", "counterexample", "equals", "is_causal", "reaches"]
