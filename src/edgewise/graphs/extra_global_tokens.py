"""Global tokens put in front of the sequence, as BigBird's ETC does."""

from dataclasses import dataclass

from edgewise.graphs.checks import whole
from edgewise.graphs.global_tokens import global_tokens
from edgewise.graphs.named import Named
from edgewise.graphs.pattern import Pattern, pattern_of


@dataclass(frozen=True, repr=False)
class extra_global_tokens(Named):
    """k more tokens in front, which hear and are heard by all; behind them `pattern`:
    {(i, j) : i < k or j < k or (i - k, j - k) ∈ pattern}.

    >>> from edgewise.graphs.window import window
    >>> extra_global_tokens(1, window(0)).edges(3).T.tolist()
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0], [2, 2]]
    """

    tokens: int
    pattern: Pattern

    def __post_init__(self) -> None:
        whole(self.tokens, "tokens")
        pattern_of(self.pattern)
        meaning = self.meaning()
        object.__setattr__(self, "depth", meaning.depth)
        object.__setattr__(self, "total", meaning.total)

    def meaning(self) -> Pattern:
        return global_tokens(self.tokens) | self.pattern.shift(self.tokens)
