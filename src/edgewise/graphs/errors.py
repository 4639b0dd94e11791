"""Errors of patterns."""

from edgewise.errors import EdgewiseError


class BadSize(EdgewiseError):
    """Radii, steps, block sizes and numbers of tokens are non-negative integers."""

    code = "bad-size"
    example = "window(-1)"
    instead = "window(1)"


class BadProbability(EdgewiseError):
    """A probability is a number from 0 to 1."""

    code = "bad-probability"
    example = "erdos_renyi(8, seed=0)"
    instead = "erdos_renyi(0.008, seed=0)"


class BadChoice(EdgewiseError):
    """An argument is not one of the values it can have."""

    code = "bad-choice"
    example = 'bigbird(variant="google")'
    instead = 'bigbird(variant="paper")'


class MissingSeed(EdgewiseError):
    """A random graph is part of a model: without its seed the model cannot be rebuilt."""

    code = "missing-seed"
    example = "random_edges(3)"
    instead = "random_edges(3, seed=0)"


class EdgeOutOfRange(EdgewiseError):
    """An edge has the index of a token that does not exist."""

    code = "edge-out-of-range"
    example = "from_edges([(0, 9)]).rows(4)"
    instead = "from_edges([(0, 3)]).rows(4)"


class BadEdges(EdgewiseError):
    """Edges are pairs (i, j) of integers: an (e, 2) list or a (2, e) integer tensor."""

    code = "bad-edges"
    example = "from_edges([(0, 1, 2)])"
    instead = "from_edges([(0, 1), (1, 2)])"


class TreeCycle(EdgewiseError):
    """Parents form a forest: every chain of parents ends at a root, whose parent is -1."""

    code = "tree-cycle"
    example = "tree([1, 0])"
    instead = "tree([-1, 0])"


class SizeMismatch(EdgewiseError):
    """A pattern defined for one number of tokens is used with another."""

    code = "size-mismatch"
    example = "documents([3, 4]).rows(8)"
    instead = "documents([3, 5]).rows(8)"


class NotAPattern(EdgewiseError):
    """The operators of the algebra combine patterns with patterns."""

    code = "not-a-pattern"
    example = "window(3) | 1"
    instead = "window(3) | global_tokens(1)"


class NotAPair(EdgewiseError):
    """An atom of a pattern has two terms: the query and the key it attends to."""

    code = "not-a-pair"
    example = "window(2)(V.I)"
    instead = "window(2)(V.I, V.J)"


class PatternTooDeep(EdgewiseError):
    """An expression of patterns is evaluated recursively, to a bounded depth.

    A union or intersection of any number of patterns is one level, and so is a power.
    """

    code = "pattern-too-deep"
    example = """\
chain = window(1)
for hop in range(1000):
    chain = chain.compose(causal())
chain.count(8)"""
    instead = "window(1).compose(causal().power(1000)).count(8)"


class TooManyPairs(EdgewiseError):
    """The result of a call would not fit into the memory of this machine.

    Counts, membership and blocks need no list of pairs where a pattern is arithmetic on i and j.
    """

    code = "too-many-pairs"
    example = "full().edges(1_000_000_000)"
    instead = "full().count(1_000_000_000)"
