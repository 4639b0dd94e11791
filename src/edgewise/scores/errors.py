"""What can be wrong with a score."""

from edgewise.errors import EdgewiseError


class BadScore(EdgewiseError):
    """A score is one number for each pair, made of S, I, J, H, numbers, tables and functions."""

    code = "bad-score"
    example = "from edgewise.scores import S\n\nS if S > 0 else 0.1 * S"
    instead = "from edgewise.scores import S, where\n\nwhere(S > 0, S, 0.1 * S)"


class ScoreTooDeep(EdgewiseError):
    """A score is computed for every pair and worked out level by level, and levels are few.

    Numbers that differ from place to place are a table, which is one level.
    """

    code = "score-too-deep"
    example = """\
from edgewise.scores import I, J, S, where

score = S
for distance in range(1000):
    score = where((I - J).equals(distance), S - distance / 10, score)"""
    instead = """\
from edgewise.scores import I, J, S, table

score = S - table(torch.arange(1000) / 10, I - J)"""
