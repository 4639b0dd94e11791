"""What can be wrong with a score."""

from edgewise.errors import EdgewiseError


class BadScore(EdgewiseError):
    """A score is one number for each pair, made of S, I, J, H, numbers, tables and functions."""

    code = "bad-score"
    example = "from edgewise.scores import S\n\nS if S > 0 else 0.1 * S"
    instead = "from edgewise.scores import S, where\n\nwhere(S > 0, S, 0.1 * S)"
