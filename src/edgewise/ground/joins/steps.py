"""A body joined in steps: each binds variables from the shortest list of matches (a generic join).

Of a triangle `e(X, Y), e(Y, Z), e(Z, X)`, the second step reads for each edge (X, Y) the shorter of
the lists of Z after Y and of Z before X, and looks up the other: never more than edges^1.5 in all.
A variable that nothing needs any more is dropped, and groundings that differ only in it become one.
Once all variables that groundings assign are bound, later steps only ask whether there is a match.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from edgewise.ground.index import Index, Keys
from edgewise.ground.joins.body import Body, is_read, terms_of
from edgewise.ground.joins.key_ranges import KeyRange

Listed = tuple[list[int], list[int], KeyRange | None]  # of a step: lists, then, range


@dataclass(frozen=True)
class JoinStep:
    """Literals that are joined together.

    Each of `lists` is an atom that could bind the same variable: of each grounding, the one with
    the fewest matches does, and the others are looked up. `then` are joined one after the other.
    """

    lists: tuple[int, ...]
    then: tuple[int, ...]
    live: tuple[str, ...]  # the variables that later steps or the groundings need, as keys sort
    drops: bool  # a variable is not live any more
    range: KeyRange | None  # of a variable that the lists bind
    needs: frozenset[str]  # the variables of this step and later ones
    tests: bool  # nothing that groundings assign or read is bound from here on


def steps_of(
    body: Body,
    order: Sequence[int],
    index: Callable[[int], Index | None],
    visible: tuple[str, ...],
    first: Collection[str] = (),
) -> list[JoinStep]:
    """The steps of an order of literals, after which the variables `visible` are needed.

    `index` gives the keys of those that are atoms; the variables `first` are bound before.
    """
    found: list[Listed] = [([], [], None)]
    known = set(first)
    before, fresh = known, known  # the variables before the last step, and those that it binds
    for at in order:
        terms, names = terms_of(body.literals[at]), body.names[at]
        free = set(names) - known
        listed = len(set(names)) == len(names) and isinstance(index(at), Keys)
        ranged = body.range_of(at, known) if listed and free else None
        if not listed:
            found[-1][1].append(at)
        elif free and (len(free) < len(terms) or ranged is not None):
            found.append(([at], [], ranged))
            before, fresh = set(known), free
        elif len(fresh) == 1 < len(terms) and set(names) - before == fresh:
            found[-1][0].append(at)
        else:
            found[-1][1].append(at)
        known |= free
    return _with_live(body, found, visible, set(first))


def _with_live(
    body: Body, found: Sequence[Listed], visible: tuple[str, ...], bound: set[str]
) -> list[JoinStep]:
    needs = frozenset[str]()
    after, tests = [], True
    for lists, then, _ in reversed(found):
        after.append((needs, tests))
        needs |= _names(body, lists + then)
        tests &= not any(is_read(body.literals[at]) for at in lists + then)
    after.append((needs, tests))
    steps = []
    for (lists, then, ranged), (needs, tests), (later, _) in zip(
        found, after[:0:-1], after[-2::-1], strict=True
    ):
        tests &= set(visible) <= bound
        bound |= _names(body, lists + then)
        live = later.union(visible)
        drops = not bound <= live
        bound &= live
        names = [name for name in visible if name in bound]
        names += sorted(bound - set(names))
        steps.append(JoinStep(tuple(lists), tuple(then), tuple(names), drops, ranged, needs, tests))
    return steps


def _names(body: Body, places: Sequence[int]) -> set[str]:
    return {name for at in places for name in body.names[at]}
