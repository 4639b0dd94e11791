"""Global tokens prepended to the sequence (BigBird-ETC)."""

from dataclasses import dataclass

from edgewise.graphs.algebra import Derived, pattern_of
from edgewise.graphs.checks import integer
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.global_tokens import global_tokens


@dataclass(frozen=True, repr=False)
class extra_global_tokens(Derived):
    """k global tokens prepended to the sequence of `pattern`:
    {(i, j) : i < k or j < k or (i - k, j - k) ∈ pattern}.

    >>> from edgewise.graphs.patterns.window import window
    >>> extra_global_tokens(1, window(0)).edges(3).T.tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0], [2, 2]]
    """

    tokens: int
    pattern: Pattern

    def __post_init__(self) -> None:
        integer(self.tokens, "tokens")
        pattern_of(self.pattern)
        definition = self.definition()
        object.__setattr__(self, "depth", definition.depth)
        object.__setattr__(self, "total", definition.total)

    def definition(self) -> Pattern:
        return global_tokens(self.tokens) | self.pattern.shift(self.tokens)
