"""Relative positions: a learnable number for each head and each distance, far ones together.

    bₕᵢⱼ = tableₕ[bucket(j − i)]

https://arxiv.org/abs/1910.10683, as in T5 and MPNet.
"""

from edgewise.language import R, V, W
from edgewise.language.nodes import Atom
from edgewise.zoo.parts import Statements


def relative(x: Atom, y: Atom, buckets: int, far: int, *, both: bool = True) -> Statements:
    """y(H, I, J) for all rows I and J of x; `B` needs the domain of the buckets."""
    rows = R.hidden[x.relation]
    bucket = R.special.bucket if both else R.special.bucket_before
    near = bucket(V.I, V.J, buckets, far, V.B)
    return [y(V.H, V.I, V.J) <= (W[y.relation](V.B, V.H)[1,], near, rows(V.I), rows(V.J))]
