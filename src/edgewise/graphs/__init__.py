"""Attention graphs: an algebra of sets of pairs (i, j), where query i attends to key j."""

from edgewise.graphs import patterns
from edgewise.graphs.drawing import compare as compare
from edgewise.graphs.families import per_head as per_head
from edgewise.graphs.families import per_layer as per_layer
from edgewise.graphs.families import per_sample as per_sample
from edgewise.graphs.pattern import Pattern as Pattern
from edgewise.graphs.patterns import *  # noqa: F403
from edgewise.graphs.text import PatternLike, parse_pattern

PATTERNS: dict[str, type[Pattern]] = {
    name: thing
    for name, thing in list(globals().items())
    if isinstance(thing, type) and issubclass(thing, Pattern) and thing is not Pattern
}

__all__ = [
    *(name for name, thing in vars(patterns).items() if callable(thing)),
    *("Pattern", "per_head", "per_layer", "per_sample", "compare", "parse"),
]


def parse(text: str) -> PatternLike:
    """The pattern that a text describes, in the form that `repr` prints.

    >>> parse("causal() & (window(2) | global_tokens(1))").count(4)
    10
    """
    others = {"per_head": per_head, "per_sample": per_sample, "per_layer": per_layer}
    return parse_pattern(text, {**PATTERNS, **others, "grid": patterns.grid})
