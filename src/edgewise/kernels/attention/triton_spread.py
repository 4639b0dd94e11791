"""Gradients of the tables of scores, added up in Triton. Imported only by compiled scores.

Tables are small and pairs are many: what goes to one entry is added up before it is shared.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl

SQUARE = tl.constexpr(32)  # the least tile whose diagonals are added up


@triton.jit
def added(Grads, place, part, inside):
    """Integers, added to a table at some places."""
    low = tl.min(tl.where(inside, place, 1 << 30))
    high = tl.max(tl.where(inside, place, -1))
    if low == high:  # all pairs of the tile read one entry
        tl.atomic_add(Grads + low, tl.sum(tl.where(inside, part, 0)))
    else:
        # Triton's interpreter reads beyond a mask that is spread over a tile
        tl.atomic_add(Grads + place, part, mask=inside & (place >= 0))


@triton.jit
def added_by_distance(Grads, place, part, inside):
    """The same where the place is one along each diagonal, as it is in tiles of neighbours."""
    if place.shape[0] == place.shape[1] and place.shape[0] >= SQUARE:
        low = tl.min(tl.where(inside, place, 1 << 30))
        high = tl.max(tl.where(inside, place, -1))
        if low == high:
            tl.atomic_add(Grads + low, tl.sum(tl.where(inside, part, 0)))
        else:
            diagonals(Grads, place, tl.where(inside, part, 0))
    else:
        added(Grads, place, part, inside)


@triton.jit
def diagonals(Grads, place, part):
    """Column c of the turned tile has the diagonals c and c - SIZE, one above the other."""
    SIZE: tl.constexpr = place.shape[0]
    r, c = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    turn = (r - c) & (SIZE - 1)
    part, place = tl.gather(part, turn, 1), tl.gather(place, turn, 1)
    upper = r < c
    for side in tl.static_range(2):
        here = upper if side else r >= c
        at = tl.max(tl.where(here, place, -1), 0)
        tl.atomic_add(Grads + at, tl.sum(tl.where(here, part, 0), 0), mask=at >= 0)
