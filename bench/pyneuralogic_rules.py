"""The programs of the comparison, in the language that both libraries share.

Each function takes the `R`, `V` and `F` of one library, so both run the same rules.
"""

import math

D, WIDTH = 64, 16


def encoder(R, V, F, condition=()):
    """The published encoder block, and the sum of its rows, so that a sample has one output."""
    return [
        R.q(V.I) <= R.input(V.I)[D, D],
        R.k(V.I) <= R.input(V.I)[D, D],
        R.v(V.I) <= R.input(V.I)[D, D],
        R.d_k[1 / math.sqrt(D)],
        (R.weights(V.I, V.J) <= (R.d_k, R.k(V.J).T, R.q(V.I), *condition))
        | [F.product, F.softmax_agg(agg_terms=["J"])],
        (R.attention(V.I) <= (R.weights(V.I, V.J), R.v(V.J))) | [F.product, F.sum_agg],
        (R.norm1(V.I) <= (R.attention(V.I), R.q(V.I))) | [F.norm],
        (R.mlp(V.I)[D, D] <= R.norm1(V.I)[D, D]) | [F.relu],
        (R.norm2(V.I) <= (R.mlp(V.I), R.norm1(V.I))) | [F.norm],
        (R.out <= R.norm2(V.I)) | [F.sum_agg],
    ]


def molecules(R, V, F, types):
    """Three GIN layers as in PyNeuraLogic's `GINConv`, over embeddings of the types of atoms."""
    rules = [R.h0(V.A) <= getattr(R, kind)(V.A)[WIDTH, 1] for kind in types]
    for layer in range(3):
        x, y, own = (getattr(R, name) for name in (f"h{layer}", f"h{layer + 1}", f"own{layer}"))
        rules += [
            (y(V.I)[WIDTH, WIDTH] <= (x(V.J), R.hidden.bond(V.J, V.I, V.B))) | [F.sum_agg],
            (own(V.I) <= x(V.I)) | [F.sum_agg],
            (y(V.I)[WIDTH, WIDTH] <= own(V.I)[WIDTH, WIDTH]) | [F.sum_agg],
            y / 1 | [F.relu],
        ]
    return [*rules, (R.predict[1, WIDTH] <= R.h3(V.X)) | [F.avg_agg], R.predict / 0 | [F.sigmoid]]


def recurrent(R, V, F):
    """A recurrent network as in PyNeuraLogic's `RNN`."""
    return [
        R.h(0) <= R.first,
        (R.h(V.T) <= (R.x(V.T)[WIDTH, WIDTH], R.h(V.Z)[WIDTH, WIDTH], R.special.next(V.Z, V.T)))
        | [F.tanh],
    ]


def gated(R, V, F):
    """A gated recurrent unit as in PyNeuraLogic's `GRU`, with 1 − z."""
    back, now = R.h(V.Z)[WIDTH, WIDTH], R.x(V.T)[WIDTH, WIDTH]
    next_ = R.special.next(V.Z, V.T)
    return [
        R.h(0) <= R.first,
        (R.r(V.T) <= (R.x(V.T)[WIDTH, WIDTH], R.h(V.Z)[WIDTH, WIDTH], next_)) | [F.sigmoid],
        (R.z(V.T) <= (R.x(V.T)[WIDTH, WIDTH], R.h(V.Z)[WIDTH, WIDTH], next_)) | [F.sigmoid],
        (R.rest(V.T) <= R.z(V.T)) | [F.reverse],
        (R.part(V.T) <= (R.r(V.T), back, next_)) | [F.elproduct],
        (R.n(V.T) <= (now, R.part(V.T))) | [F.tanh],
        (R.left(V.T) <= (R.rest(V.T), R.n(V.T))) | [F.elproduct],
        (R.right(V.T) <= (R.z(V.T), R.h(V.Z), next_)) | [F.elproduct],
        R.h(V.T) <= (R.left(V.T), R.right(V.T)),
    ]


def xor(R, V, F):
    """The published XOR network."""
    return [(R.xor[1, 8] <= R.xy[8, 2]) | [F.tanh], R.xor / 0 | [F.tanh]]
