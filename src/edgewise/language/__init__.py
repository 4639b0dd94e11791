"""The rule language: what a program says, with no torch in sight."""

from edgewise.language.blocks import repeat, scope
from edgewise.language.operators import watch_for_parentheses
from edgewise.language.program import Program
from edgewise.language.symbols import C, F, R, V, W

__all__ = ["C", "F", "Program", "R", "V", "W", "repeat", "scope"]

watch_for_parentheses()
