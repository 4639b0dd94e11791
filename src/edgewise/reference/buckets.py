"""T5's buckets of distances: near ones alone, far ones together.

https://arxiv.org/abs/1910.10683
"""

import math


def bucket(distance: int, buckets: int, far: int, *, both: bool = True) -> int | None:
    """The bucket of a key that stands `distance` after the query; `both`: keys after it have half
    of the buckets to themselves, else they share the query's.

    Half of the buckets of a side hold one distance each, the others grow as logarithms up to `far`.
    None where there are too few buckets, or `far` is among the distances that stand alone.

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
    if not 0 < exact < far:
        return None
    if distance < exact:
        return first + distance
    share = math.log(distance / exact) / math.log(far / exact)
    return first + min(exact + int(share * (buckets - exact)), buckets - 1)
