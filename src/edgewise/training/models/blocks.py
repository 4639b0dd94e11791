"""The attention of recipes: heads of one group, with a graph, or with padding."""

import math

from edgewise.language import F, R, V, W
from edgewise.language.nodes import Atom, Expression
from edgewise.zoo.parts import Statements, dropped


def attention(
    x: Atom,
    source: Atom,
    y: Atom,
    *,
    size: int,
    d: int,
    name: str = "",
    where: tuple[Expression, ...] = (),
    padding: Atom | None = None,
    p: float = 0.0,
) -> Statements:
    """yᵢ = ∥ₕ Σⱼ softmaxⱼ(qₕᵢ · kₕⱼ / √d + paddingⱼ) vₕⱼ: rows of `x` hear rows of `source`.

    `V.H` ranges over the heads; `padding` is far below 0 where there is no token.
    """
    q, k, v = (R[f"{part}{name}"] for part in "qkv")
    weights, heard = R[f"weights{name}"], R[f"heard{name}"]
    rules: Statements = []
    for part, read in ((q, x), (k, source), (v, source)):
        matrix = W[f"{part.relation}.weight"](V.H)[d, size]
        rules.append(part(V.H, V.I) <= (read(V.I)[matrix], W[f"{part.relation}.bias"](V.H)[d,]))
    score = k(V.H, V.J).T @ q(V.H, V.I)[1 / math.sqrt(d)].fixed()
    body = score if padding is None else score + padding(V.J)
    return [
        *rules,
        (weights(V.H, V.I, V.J) <= (body, *where)) | [F.softmax_agg(agg_terms=[V.J])],
        (heard(V.H, V.I) <= (dropped(weights(V.H, V.I, V.J), p), v(V.H, V.J))) | [F.product],
        (y(V.I) <= heard(V.H, V.I)) | [F.concat_agg],
    ]
