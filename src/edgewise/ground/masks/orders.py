"""Orders of tokens in which the pairs of a mask may cost less: sorted by what conditions read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from edgewise.ground.masks.cells import (
    Order,
)
from edgewise.ground.masks.leaves import Equal, Interval, Related
from edgewise.ground.masks.read import AllOf, AnyOf, NotIn, Read
from edgewise.ground.masks.sides import codes_of
from edgewise.layouts.ragged import Ints

MOST_ORDERS = 8


def candidate_orders(read: Read) -> list[tuple[str, Order]]:
    """Orders of tokens that gather classes, or rank keys, of some conditions."""
    found: list[tuple[str, Order]] = []
    for keys in _sort_keys(read):
        if not keys or len(found) == MOST_ORDERS:
            continue
        query = np.lexsort([_last(key.query) for key in reversed(keys)])
        key_ = np.lexsort([_last(key.key) for key in reversed(keys)])
        order = Order(query, key_)
        same = any(
            np.array_equal(order.query, o.query) and np.array_equal(order.key, o.key)
            for _, o in found
        )
        if not same and not order.is_identity:
            names = dict.fromkeys(key.name for key in keys)
            found.append((f"sorted by {' and '.join(names)}", order))
    return found


def _last(classes: Ints) -> Ints:
    """Tokens without a class come after all others."""
    return np.where(classes < 0, np.iinfo(np.int64).max, classes)


@dataclass(frozen=True, eq=False)
class SortKey:
    """A number of each token to sort by."""

    name: str
    query: Ints
    key: Ints


def _sort_keys(read: Read) -> list[list[SortKey]]:
    """What tokens may be sorted by, each choice a list."""
    match read:
        case AllOf(leaves, parts):
            own: list[list[SortKey]] = [[]]
            if any(isinstance(leaf, Equal) and leaf.is_empty for leaf in leaves):
                return own
            equal = joint_classes([leaf for leaf in leaves if isinstance(leaf, Equal)])
            steps = [] if equal is None else [SortKey(equal.name, equal.query, equal.key)]
            own += [steps] if steps else []
            for leaf in leaves:
                if isinstance(leaf, Related):
                    steps = [*steps, SortKey(leaf.name, leaf.query, leaf.key)]
                    own.append(steps)
            for leaf in leaves:
                if isinstance(leaf, Interval):
                    ends = (leaf.rank, _ends(leaf)) if leaf.turned else (_ends(leaf), leaf.rank)
                    own.append([*steps, SortKey(leaf.name, *ends)])
            inner = [keys for part in parts for keys in _sort_keys(part) if keys]
            return [*own, *([*a, *b] for b in inner for a in own[-1:])]
        case AnyOf(parts):
            several = [[keys for keys in _sort_keys(part) if keys] for part in parts]
            first = [keys for one in several for keys in one]
            joined = [key for one in several if one for key in one[0]]
            return [[], *first, joined]
        case NotIn(part):
            return _sort_keys(part)
    assert_never(read)


def _ends(leaf: Interval) -> Ints:
    """Where the intervals that each query attends to end: the mean, times two."""
    found = np.full(len(leaf.ptr) - 1, -1, np.int64)
    count = np.diff(leaf.ptr)
    some = count > 0
    total = np.concatenate([[0], np.cumsum(leaf.start + leaf.stop)])
    found[some] = (total[leaf.ptr[1:]] - total[leaf.ptr[:-1]])[some] // count[some]
    return found


def joint_classes(several: Sequence[Equal]) -> Equal | None:
    """All of them as one: the classes of tokens are those in all."""
    if len(several) < 2:
        return several[0] if several else None
    query, key = (
        np.stack([getattr(leaf, side) for leaf in several], 1) for side in ("query", "key")
    )
    codes, other = codes_of(query, key)
    codes = np.where((query < 0).any(1), -1, codes)
    other = np.where((key < 0).any(1), -1, other)
    names = dict.fromkeys(leaf.name for leaf in several)
    return Equal(" and ".join(names), codes, other)
