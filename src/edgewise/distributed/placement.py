"""Orders of tokens on ranks that suit a graph: by residue, or with documents whole."""

from __future__ import annotations

import numpy as np

from edgewise.distributed.shards import Shards
from edgewise.distributed.traffic import RowSizes
from edgewise.graphs.algebra import Derived, difference, intersection, union
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.causal import causal
from edgewise.graphs.patterns.documents import documents
from edgewise.graphs.residues import class_of, symbolic_step
from edgewise.layouts.ragged import Ints

UNEVEN = 20  # documents stay whole where at most one in so many tokens of a rank is another's


def best_shards(graph: Pattern, n: int, ranks: int) -> Shards:
    """The order of tokens that suits a graph, where data can be given to ranks in any: by residue
    for strided graphs, with whole documents where ranks then have about as many tokens, else
    contiguous.

    >>> from edgewise.graphs import causal, documents, strided
    >>> best_shards(causal() & strided(64), 4096, 8)
    Shards(n=4096, ranks=8, step=64, paired=False, cuts=())
    >>> best_shards(documents([51, 49]), 100, 2).cuts
    (51,)
    """
    step = symbolic_step(graph)
    if 1 < step <= n:
        return Shards(n, ranks, step=step)
    ends, bounds = document_ends(graph), Shards(n, ranks).bounds
    if ends is None or not len(ends) or ranks < 2:
        return Shards(n, ranks)
    inner = bounds[1:-1]
    at = np.clip(np.searchsorted(ends, inner), 1, len(ends) - 1) if len(ends) > 1 else inner * 0
    low, high = ends[np.maximum(at - 1, 0)], ends[at]
    near = np.where(inner - low <= high - inner, low, high)
    cuts = np.where(abs(near - inner) * ranks * UNEVEN <= n, near, inner)
    return _cut(n, ranks, cuts)


def by_residue(graph: Pattern, home: Shards) -> Shards:
    """The order of tokens by i mod s, if all pairs have i ≡ j (mod s)."""
    step = symbolic_step(graph)
    if step < 2 or step > home.n or class_of(graph, step) is None:
        return home
    return Shards(home.n, home.ranks, step=step)


def document_ends(graph: Pattern) -> Ints | None:
    """Tokens at which no pair has one side before and one from there on, as far as is known."""
    match graph:
        case documents():
            return np.unique(graph.ends)
        case intersection():
            known = [ends for one in graph.members if (ends := document_ends(one)) is not None]
            return np.unique(np.concatenate(known)) if known else None
        case union():
            found = [document_ends(one) for one in graph.members]
            several = [ends for ends in found if ends is not None]
            if len(several) < len(found):
                return None
            out = several[0]
            for ends in several[1:]:
                out = np.intersect1d(out, ends)
            return out
        case difference():
            return document_ends(graph.left)
        case Derived():
            return document_ends(graph.definition())
    return None


def with_uncut_documents(graph: Pattern, home: Shards, sizes: RowSizes) -> Shards:
    """Contiguous shards with cuts moved to the ends of documents where the rank that receives most
    then receives less.

    A document that is cut into a tokens of one rank and b of the next: as it is, the first fetches
    b keys and the second a. With its b queries on the first, this one receives b queries and keys,
    the second b partial results; or the other way round. Each rank has two such cuts: the choice
    that is best for the worst rank is found cut by cut, from the first on.
    """
    ends = document_ends(graph)
    if ends is None or not len(ends) or home.ranks < 2:
        return home
    ends, bounds = np.unique(np.append(0, ends)), home.bounds
    if ends[-1] != home.n:
        return home
    inner = bounds[1:-1]
    at = np.minimum(np.searchsorted(ends, inner, side="right"), len(ends) - 1)
    low, high = ends[at - 1], ends[at]
    a, b = inner - low, np.where(inner == low, 0, high - inner)
    later = 0 if is_causal(graph) else 1
    far = np.iinfo(np.int64).max // 4
    query, key, part = sizes.query, sizes.key, sizes.part
    left = np.stack([b * key * later, b * (query + later * key), a * part * later])
    right = np.stack([a * key, b * part, a * (key + later * query)])
    for option, allowed in ((1, high <= bounds[2:]), (2, low >= bounds[:-2])):
        left[option] = np.where(allowed, left[option], far)
    choice = _least_worst(left, right)
    return _cut(home.n, home.ranks, np.choose(choice, [inner, high, low]))


def _least_worst(left: Ints, right: Ints) -> Ints:
    """The option of each cut, given what its two ranks receive for it: (options, cuts)."""
    options, cuts = left.shape
    best, back = left[:, 0].copy(), np.zeros((cuts, options), np.int64)
    for cut in range(1, cuts):
        between = right[:, None, cut - 1] + left[None, :, cut]  # of the rank between two cuts
        total = np.maximum(best[:, None], between)
        # of equal maxima the one with the smaller sum here: later cuts are free to choose
        order = np.lexsort((between, total), axis=0)[0]
        back[cut] = order
        best = total[order, np.arange(options)]
    chosen = np.zeros(cuts, np.int64)
    chosen[-1] = int(np.argmin(np.maximum(best, right[:, -1])))
    for cut in range(cuts - 1, 0, -1):
        chosen[cut - 1] = back[cut, chosen[cut]]
    return chosen


def is_causal(graph: Pattern) -> bool:
    """Whether no query attends to a later key, as far as is known."""
    match graph:
        case causal():
            return True
        case intersection():
            return any(map(is_causal, graph.members))
        case union():
            return all(map(is_causal, graph.members))
        case Derived():
            return is_causal(graph.definition())
    return False


def _cut(n: int, ranks: int, cuts: Ints) -> Shards:
    even = Shards(n, ranks)
    same = np.array_equal(cuts, even.bounds[1:-1])
    return even if same else Shards(n, ranks, cuts=tuple(cuts.tolist()))
