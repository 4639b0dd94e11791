"""Recursion as tensor work: level by level, in rounds, or to a fixed point."""

from edgewise.physical.recursion.levels import Levels, by_levels
from edgewise.physical.recursion.parts import Component
from edgewise.physical.recursion.rounds import Rounds, by_rounds

__all__ = ["Component", "Levels", "Rounds", "by_levels", "by_rounds"]
