"""Gradients of the tables of scores, added up in Triton. Imported only by compiled scores."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def added(Grads, place, part, inside):
    """Whole numbers, added to a table at some places.

    Far from the diagonal all pairs of a tile read one entry: they are added up before they get in
    each other's way there.
    """
    low = tl.min(tl.where(inside, place, 1 << 30))
    high = tl.max(tl.where(inside, place, -1))
    if low == high:
        tl.atomic_add(Grads + low, tl.sum(tl.where(inside, part, 0)))
    else:
        tl.atomic_add(Grads + place, part, mask=inside)
