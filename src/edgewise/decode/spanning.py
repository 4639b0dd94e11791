"""The maximum spanning tree of scored arcs: Chu–Liu/Edmonds, with one word below the root.

https://aclanthology.org/H05-1066 reads a dependency tree as a spanning tree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgewise.errors import EdgewiseError, caller

Scores = NDArray[np.float64]


class BadScores(EdgewiseError):
    """Arcs of n words are scored by n rows of n + 1 numbers: the root first, then every word."""

    code = "bad-scores"
    example = """\
from edgewise.decode import spanning_tree
spanning_tree([[1.0, 0.0], [0.0, 2.0]])"""
    instead = """\
from edgewise.decode import spanning_tree
spanning_tree([[1.0, 0.0, 0.5], [0.0, 2.0, 0.0]])"""


def spanning_tree(scores: ArrayLike) -> list[int]:
    """The heads of the tree with the largest sum of scores, in which one word depends on the root.

    scores[i, j] is that of word i, from 0, below j: 0 is the root, j the j-th word. Arcs of
    score −∞ are taken only where no tree is without them.

    >>> spanning_tree([[1.0, 0.0, 9.0], [0.0, 9.0, 0.0]])
    [0, 1]
    """
    arcs = _checked(scores)
    n = len(arcs)
    if n < 2:
        return [0] * n
    finite = arcs[np.isfinite(arcs)]
    low = float(finite.min()) if len(finite) else 0.0
    # one arc below the lowest costs more than all others may win
    gap = (n + 1) * (float(finite.max()) - low + 1.0) if len(finite) else 1.0
    square = np.full((n + 1, n + 1), -np.inf)
    square[1:] = np.where(np.isfinite(arcs), arcs, low - gap)
    square[1:, 0] -= (n + 1) * gap  # every tree has an arc of the root: this asks for only one
    np.fill_diagonal(square, -np.inf)
    return [int(head) for head in _arborescence(square)[1:]]


def _checked(scores: ArrayLike) -> Scores:
    try:
        found = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.zeros((1, 0))
    if found.size == 0 and found.ndim and not len(found):
        return found.reshape(0, 1)
    if found.ndim != 2 or found.shape[1] != len(found) + 1:
        shape = "×".join(map(str, np.shape(found)))
        what = f"the scores are {shape}, for n words they are n×(n + 1)"
        raise BadScores(what, caller(), "give the root's column first")
    if np.isnan(found).any() or np.isposinf(found).any():
        i, j = np.argwhere(np.isnan(found) | np.isposinf(found))[0]
        what = f"the score of word {i} below {j} is {found[i, j]}"
        raise BadScores(what, caller(), "give numbers, or -inf for an arc that cannot be")
    return found


def _arborescence(scores: Scores) -> NDArray[np.int64]:
    """The best head of every node but 0; a cycle of them is contracted to one node."""
    heads = scores.argmax(1)
    heads[0] = 0
    cycle = _cycle(heads)
    if cycle is None:
        return heads
    inside = np.zeros(len(heads), bool)
    inside[cycle] = True
    rest = np.flatnonzero(~inside)  # node 0 stays first; the cycle becomes the last node
    gains = scores[np.ix_(cycle, rest)] - scores[cycle, heads[cycle]][:, None]
    outwards = scores[np.ix_(rest, cycle)]
    small = np.full((len(rest) + 1, len(rest) + 1), -np.inf)
    small[:-1, :-1] = scores[np.ix_(rest, rest)]
    small[-1, :-1] = gains.max(0)
    small[:-1, -1] = outwards.max(1)
    found = _arborescence(small)
    last = len(rest)
    for at, node in enumerate(rest):
        taken = found[at]
        heads[node] = cycle[outwards[at].argmax()] if taken == last else rest[taken]
    entered = cycle[gains[:, found[-1]].argmax()]  # the word at which the cycle is opened
    heads[entered] = rest[found[-1]]
    heads[0] = 0
    return heads


def _cycle(heads: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The nodes of a cycle, if following heads does not end at node 0."""
    state = np.zeros(len(heads), np.int64)  # the walk in which a node was seen
    state[0] = -1
    for start in range(1, len(heads)):
        at = start
        while state[at] == 0:
            state[at] = start
            at = int(heads[at])
        if state[at] == start:
            found = [at]
            while (following := int(heads[found[-1]])) != at:
                found.append(following)
            return np.array(found)
    return None
