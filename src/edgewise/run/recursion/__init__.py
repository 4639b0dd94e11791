"""Recursion as tensor work: level by level, in rounds, or to a fixed point."""

from edgewise.run.recursion.levels import Levels, levels
from edgewise.run.recursion.parts import Component
from edgewise.run.recursion.rounds import Rounds, rounds

__all__ = ["Component", "Levels", "Rounds", "levels", "rounds"]
