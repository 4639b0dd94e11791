"""Relative positions: a learnable number for each head and each distance, far ones together.

    bₕᵢⱼ = tableₕ[bucket(j − i)]

https://arxiv.org/abs/1910.10683, as in T5 and MPNet.
"""

import math
from dataclasses import dataclass

from edgewise.language import R, V, W
from edgewise.language.nodes import Atom
from edgewise.zoo.parts import Statements

SHIFT = 1 << 20  # arithmetic is over the natural numbers: the distance d is SHIFT + d


def relative(x: Atom, y: Atom, buckets: int, far: int, *, both: bool = True) -> Statements:
    """y(H, I, J) for all rows I and J of x; `B` needs the domain of the buckets.

    The function sees every distance once, not every pair.
    """
    rows, near = R.hidden[x.relation], R[f"{y.relation}_bucket"]
    bucket_ = R.special.fn(Bucket(buckets, far, both))(V.D, V.B)
    pairs = R.special.add(V.I, SHIFT, V.S), R.special.sub(V.S, V.J, V.D), rows(V.I), rows(V.J)
    return [
        near(V.D, V.B) <= (rows(V.I), R.special.add(V.I, SHIFT, V.D), bucket_),
        near(V.D, V.B) <= (rows(V.I), R.special.sub(SHIFT, V.I, V.D), bucket_),
        y(V.H, V.I, V.J)
        <= (W[y.relation](V.B, V.H)[1,], R.hidden[near.relation](V.D, V.B), *pairs),
    ]


@dataclass(frozen=True)
class Bucket:
    """The bucket of a key that stands d before the query, given SHIFT + d."""

    buckets: int
    far: int
    both: bool

    def __call__(self, shifted: int) -> int:
        return bucket(SHIFT - shifted, self.buckets, self.far, both=self.both)


def bucket(distance: int, buckets: int, far: int, *, both: bool = True) -> int:
    """Half of the buckets hold one distance each, the others grow as logarithms up to `far`.

    >>> [bucket(d, 8, 16) for d in (-20, -2, -1, 0, 1, 2, 20)]
    [3, 2, 1, 0, 5, 6, 7]
    """
    first = 0
    if both:  # the upper half of the buckets is for keys ahead
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    share = math.log(distance / exact) / math.log(far / exact)
    return first + min(exact + int(share * (buckets - exact)), buckets - 1)
