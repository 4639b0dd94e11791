"""What can be wrong with a pattern, and checks of its sizes."""

from numbers import Integral, Real
from typing import Any

from edgewise.errors import EdgewiseError, caller


class BadSize(EdgewiseError):
    """Radii, steps, block sizes and numbers of tokens are counts: whole and not too small."""

    code = "bad-size"
    example = "window(-1)"
    instead = "window(1)"


class BadProbability(EdgewiseError):
    """A probability is a number from 0 to 1."""

    code = "bad-probability"
    example = "erdos_renyi(8, seed=0)"
    instead = "erdos_renyi(0.008, seed=0)"


class BadChoice(EdgewiseError):
    """An argument that names one of a few variants names another."""

    code = "bad-choice"
    example = 'bigbird(variant="google")'
    instead = 'bigbird(variant="paper")'


class MissingSeed(EdgewiseError):
    """A random graph is part of a model: without its seed nobody could build that model again."""

    code = "missing-seed"
    example = "random_edges(3)"
    instead = "random_edges(3, seed=0)"


class EdgeOutOfRange(EdgewiseError):
    """An edge names a token that is not there."""

    code = "edge-out-of-range"
    example = "from_edges([(0, 9)]).rows(4)"
    instead = "from_edges([(0, 3)]).rows(4)"


class BadEdges(EdgewiseError):
    """Edges are pairs (i, j) of whole numbers: an (e, 2) list or a (2, e) integer tensor."""

    code = "bad-edges"
    example = "from_edges([(0, 1, 2)])"
    instead = "from_edges([(0, 1), (1, 2)])"


class TreeCycle(EdgewiseError):
    """Following parents upwards must end at a root, whose parent is -1."""

    code = "tree-cycle"
    example = "tree([1, 0])"
    instead = "tree([-1, 0])"


class SizeMismatch(EdgewiseError):
    """A pattern made for a certain number of tokens was asked about another number."""

    code = "size-mismatch"
    example = "documents([3, 4]).rows(8)"
    instead = "documents([3, 5]).rows(8)"


class NotAPattern(EdgewiseError):
    """The operators of the algebra combine patterns with patterns."""

    code = "not-a-pattern"
    example = "window(3) | 1"
    instead = "window(3) | global_tokens(1)"


def whole(value: Any, name: str, least: int = 0) -> int:
    """`value` as an int, if it is a whole number ≥ `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        fix = f"give a whole number, such as `{max(round(value), least)}`" if _finite(value) else ""
        raise BadSize(
            f"`{name}` must be a whole number, got {value!r}", caller(), fix or "give an integer"
        )
    if value < least:
        raise BadSize(
            f"`{name}` must be at least {least}, got {value}", caller(), f"give {least} or more"
        )
    return int(value)


def probability(value: Any, name: str = "p") -> float:
    """`value` as a float, if it is from 0 to 1."""
    if not _finite(value) or not 0 <= value <= 1:
        raise BadProbability(
            f"`{name}` must be from 0 to 1, got {value!r}",
            caller(),
            "for a mean of d keys among n give d / n",
        )
    return float(value)


def seeded(seed: Any, name: str) -> int:
    """`seed` as an int; every random pattern needs one."""
    if seed is None:
        raise MissingSeed(
            f"`{name}` is random and needs a seed", caller(), f"write `{name}(..., seed=0)`"
        )
    return whole(seed, "seed")


def one_of(value: Any, name: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        listed = ", ".join(f'"{choice}"' for choice in choices)
        raise BadChoice(f"`{name}` cannot be {value!r}", caller(), f"choose one of {listed}")
    return str(value)


def _finite(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and abs(float(value)) < 2**62
