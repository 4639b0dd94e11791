"""The syntax tree: frozen, hashable pieces of a program.

Two pieces are equal if they say the same; where they were written (`place`) does not count.
"""

from edgewise.language.nodes.expressions import (
    Apply,
    Atom,
    Expression,
    PatternAtom,
    SpecialAtom,
    Weight,
)
from edgewise.language.nodes.statements import Fact, Line, Rule, Stack, Statement
from edgewise.language.nodes.words import (
    Constant,
    Function,
    Literal,
    Number,
    Opaque,
    Term,
    Variable,
)

__all__ = [
    "Apply",
    "Atom",
    "Constant",
    "Expression",
    "Fact",
    "Function",
    "Line",
    "Literal",
    "Number",
    "Opaque",
    "PatternAtom",
    "Rule",
    "SpecialAtom",
    "Stack",
    "Statement",
    "Term",
    "Variable",
    "Weight",
]
