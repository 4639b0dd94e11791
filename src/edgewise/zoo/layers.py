"""The rules of a layer by its options, those of `edgewise.zoo.block.Block`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from edgewise.language import F, R, V, W
from edgewise.language.nodes import Atom, Expression, Fact, Statement, Variable
from edgewise.language.statements import mapped
from edgewise.zoo.block import ACTIVATIONS, GATED, Config, Edges, everywhere
from edgewise.zoo.parts import (
    FAR,
    Statements,
    affine,
    dropped,
    head_size,
    heads,
    layer_norm,
    relative,
    residual,
    rotary,
    rotated,
    speeds,
)

BUCKETS, FAR_BUCKET = 32, 128
MOST = 1e30  # keys
AGGREGATED = "_of"  # what the relation of aggregated values ends with
REAL = (R.present(V.I), R.present(V.J))  # no pairs of padding; see `parts.present`
REAL_KEY = REAL[1]
Norm = Callable[..., Statements]


def factor(config: Config, d: int) -> float:
    """What q · k is multiplied by."""
    match config.scale:
        case "sqrt":
            return 1 / math.sqrt(d)
        case "none":
            return 1.0
    assert isinstance(config.scale, int | float)
    return float(config.scale)


def scaled(query: Atom, by: float) -> Expression:
    return query if by == 1 else query[by].fixed()


def hidden_size(config: Config) -> int:
    return config.feed_forward if isinstance(config.feed_forward, int) else config.hidden


def sublayer(
    x: Atom,
    added: Atom,
    normed: Atom,
    rules: Callable[[Atom], Statements],
    inner: Atom,
    width: int,
    config: Config,
    *,
    norm: Norm = layer_norm,
    bias: bool = True,
    all_rows: bool = True,
    adds: Callable[..., Statements] = residual,
) -> tuple[Statements, Atom]:
    """What `rules` derive as `inner` (of `width` numbers) from the rows they read, added to x.

    Gives the rules, and the relation of the sum: `added`, or `normed` where the norm comes last.
    `adds` are the rules of the residual connection.
    """
    size, eps = config.size, config.eps
    how: Any = {"everywhere": all_rows, "bias": bias}
    read = normed if config.norm == "pre" else x
    before = norm(x, normed, size, eps=eps) if config.norm == "pre" else []
    made = [*before, *rules(read), *adds(x, inner, added, width, size, config.dropout, **how)]
    if config.norm == "post":
        return [*made, *norm(added, normed, size, eps=eps)], normed
    return made, added


def layer(
    x: Atom,
    attends: Callable[[Atom], Statements],
    config: Config,
    *,
    out: Atom = R.added,
    p: float = 0.0,
    norm: Norm = layer_norm,
    bias: bool = True,
    width: int | None = None,
    all_rows: bool | None = None,
) -> Statements:
    """A layer whose rules `attends` derive `heads(i)`; its output is the head of the last rule.

    pre    aᵢ = xᵢ + O attention(norm1(x))ᵢ,   yᵢ = aᵢ + W₂ activation(W₁ norm2(a)ᵢ)
    post   aᵢ = norm1(xᵢ + O attention(x)ᵢ),   yᵢ = norm2(aᵢ + W₂ activation(W₁ aᵢ))

    - out: the relation of the last sum, after which its weights are named.
    - p: the dropout of the hidden layer.
    """
    how: Any = {"norm": norm, "bias": bias}
    total = everywhere(config.graph) if all_rows is None else all_rows
    rules, mid = sublayer(
        x, R.attended, R.norm1, attends, R.heads, width or config.size, config,
        all_rows=total, **how,
    )  # fmt: skip
    return [*rules, *feed_forward(mid, out, R.norm2, config, p=p, **how)]


def feed_forward(
    x: Atom,
    out: Atom,
    normed: Atom,
    config: Config,
    *,
    p: float = 0.0,
    norm: Norm = layer_norm,
    bias: bool = True,
) -> Statements:
    """The second sublayer, or none."""
    if config.feed_forward == "none":
        return []
    how: Any = {"norm": norm, "bias": bias}
    return sublayer(
        x, out, normed, lambda read: hidden_layer(read, R.mlp, config, p=p, bias=bias),
        R.mlp, hidden_size(config), config, **how,
    )[0]  # fmt: skip


def hidden_layer(
    x: Atom, y: Atom, config: Config, *, p: float = 0.0, bias: bool = True
) -> Statements:
    """yᵢ = activation(W xᵢ + b), or gated: activation(W xᵢ + b) ⊙ (U xᵢ + c)."""
    size, hidden, kind = config.size, hidden_size(config), config.feed_forward
    gate, up = R[f"{y.relation}_gate"], R[f"{y.relation}_up"]

    def mapped_to(name: str) -> tuple[Expression, ...]:
        both = affine(x(V.I), name, size, hidden)
        return both if bias else both[:1]

    if kind in GATED:
        return [
            (gate(V.I) <= mapped_to("gate")) | [GATED[str(kind)]],
            up(V.I) <= mapped_to("up"),
            y(V.I) <= dropped(gate(V.I) * up(V.I), p),
        ]
    activation = ACTIVATIONS.get(str(kind), config.activation)
    functions = [activation, F.dropout(p)] if p else [activation]
    return [(y(V.I) <= mapped_to("mlp")) | functions]


def attention(
    x: Atom,
    y: Atom,
    config: Config,
    edges: Edges,
    *,
    d: int | None = None,
    to: Atom | None = None,
    bias: bool = True,
    key_bias: bool = True,
    scores: tuple[Expression, ...] = (),
    placed: bool = True,
) -> Statements:
    """Multi-head attention of x along edges, by the options of a configuration.

    - to: the relation that is attended to, by default x itself.
    - scores: terms added to the score, expressions of `V.H`, `V.I` and `V.J`.
    - placed: positions that are part of scores are.
    """
    size, to = config.size, x if to is None else to
    d = head_size(size, config.heads) if d is None else d
    values = heads(to, R.v, size, d, bias=bias)
    if config.aggregation != "softmax":
        return [*values, *attend(x, y, R.v(V.H, V.J), scores, config, edges)]
    turn = placed and config.positions == "rotary"
    q, k = (R.rotated_q, R.rotated_k) if turn else (R.q, R.k)
    query = scaled(q(V.H, V.I), factor(config, d))
    terms = (k(V.H, V.J).T @ query, *(score_terms(config) if placed else ()), *scores)
    return [
        *heads(x, R.q, size, d, bias=bias),
        *heads(to, R.k, size, d, bias=bias and key_bias),
        *values,
        *(rotated(R.q, q) + rotated(R.k, k) if turn else []),
        *attend(x, y, R.v(V.H, V.J), terms, config, edges),
    ]


def attend(
    x: Atom,
    y: Atom,
    value: Atom,
    scores: tuple[Expression, ...],
    config: Config,
    edges: Edges,
    *,
    keys: tuple[Variable, ...] = (V.H,),
    context: Atom = R.context,
    weights: Atom = R.weights,
) -> Statements:
    """y(i) for the rows i of x: values by their scores along edges, heads concatenated.

    `keys` number the heads, the first of them where edges differ between heads.
    """
    if len(edges) == 1:
        rules = _aggregated(x, context, weights, value, scores, config, edges[0][1], keys)
        return [*rules, (y(V.I) <= context(*keys, V.I)) | [F.concat_agg]]
    made: Statements = []
    outs: list[Expression] = []
    first, each = 0, config.heads // len(edges)
    for g, (count, where) in enumerate(edges):
        slices: dict[str, Statement] = {}
        cut = partial(_sliced, head=keys[0], group=g, first=first, count=count, slices=slices)
        out, part = R[f"{y.relation}_{g}"], R[f"{context.relation}_{g}"]
        inner = (V.Head, *keys[1:])
        rules = _aggregated(
            x, part, R[f"{weights.relation}_{g}"], cut(value), cut(scores), config, where, inner
        )
        width = each * value_size(config)
        none = W[f"none_{g}"][width,].filled(0.0).fixed()
        made += [*slices.values(), *rules, (out(V.I) <= part(*inner, V.I)) | [F.concat_agg]]
        made += [] if everywhere(config.graph) else [out(V.I) <= (none, _row(x))]
        outs.append(out(V.I))
        first += count
    return [*made, (y(V.I) <= (*outs, _row(x))) | [F.concat]]


def value_size(config: Config) -> int:
    """The number of features of a head."""
    return int(getattr(config, "d", 0)) or head_size(config.size, config.heads)


def _row(x: Atom) -> Expression:
    return R.hidden[x.relation](V.I)


def _sliced(
    node: Any, *, head: Variable, group: int, first: int, count: int, slices: dict[str, Statement]
) -> Any:
    """The same for `count` heads from `first` on; their relations are added to `slices`."""
    if isinstance(node, Atom) and head in node.terms:
        name = f"{node.relation}_{group}"
        terms = tuple(V.Head if term == head else term for term in node.terms)
        here = R.special.add(V.Head, first, head), R.special.lt(V.Head, count)
        slices[name] = R[name](*terms) <= (R[node.relation](*node.terms), *here)
        return replace(node, relation=name, terms=terms)
    how: Any = {"head": head, "group": group, "first": first, "count": count, "slices": slices}
    return mapped(node, partial(_sliced, **how))


def _aggregated(
    x: Atom,
    y: Atom,
    weights: Atom,
    value: Atom,
    scores: tuple[Expression, ...],
    config: Config,
    where: tuple[Expression, ...],
    keys: tuple[Variable, ...],
) -> Statements:
    """y(h, i): the values of the keys j of i, by softmax, or their sum, mean or maximum."""
    if config.aggregation == "softmax":
        softmax = F.softmax_agg(agg_terms=[V.J])
        weight = weights(*keys, V.I, V.J)
        p = config.dropout if config.attention_dropout is None else config.attention_dropout
        return [
            (weight <= (*scores, *where)) | [F.sum, softmax],
            (y(*keys, V.I) <= (dropped(weight, p), value)) | [F.product],
        ]
    # of all keys, without conditions, one aggregate serves every row
    row, rows = ((_row(x),), (V.I,)) if where else ((), ())
    heads_ = tuple(key for key in keys if key in value.terms)
    found = R[f"{y.relation}{AGGREGATED}"](*heads_, *rows)
    count = R[f"{y.relation}_count"](*rows)
    padded, kind = REAL_KEY in scores, config.aggregation
    out: Expression = found
    made: Statements = []
    if kind == "max":
        low = F.reverse(R.mask(V.J))[FAR].fixed()
        made = [(found <= (value + low if padded else value, *row, *where)) | [F.max_agg]]
    elif kind == "mean" and not padded:
        made = [(found <= (value, *row, *where)) | [F.avg_agg]]
    else:
        total = (R.mask(V.J), value) if padded else (value,)
        made = [(found <= (*total, *row, *where)) | [F.product]]
    if kind != "sum" and padded:  # 0, where all keys are padding
        made.append(count <= (R.mask(V.J), *row, *where))
        share = F.clamp(0, 1)(count) if kind == "max" else F.inverse(F.clamp(1, MOST)(count))
        out = share * found
    return [*made, y(*keys, V.I) <= (out, _row(x), *_others(keys, heads_))]


def _others(keys: tuple[Variable, ...], known: tuple[Variable, ...]) -> tuple[Expression, ...]:
    """What binds the heads that a value does not depend on."""
    return tuple(W[f"each_{k.name}"](k)[1,].filled(1.0).fixed() for k in keys if k not in known)


def score_terms(config: Config, keys: tuple[Variable, ...] = (V.H,)) -> tuple[Expression, ...]:
    """What positions add to a score; `keys` number the heads."""
    match config.positions:
        case "alibi":
            return (R.slope(*keys) * R.distance(V.I, V.J),)
        case "relative":
            return (R.relative(*keys, V.I, V.J),)
    return ()


def positions(
    x: Atom, config: Config, *, both: bool = True, heads: Mapping[Variable, int] | None = None
) -> Statements:
    """The rules behind positions that are part of scores; `both`: keys ahead are attended to.

    `heads` are the variables that number the heads, and their sizes.
    """
    heads = {V.H: config.heads} if heads is None else heads
    match config.positions:
        case "rotary":
            return rotary(x, speeds(value_size(config)))
        case "alibi":
            rows = R.hidden[x.relation]
            far = F.abs(R.special.sub_eval(V.I, V.J))
            slopes = [2.0 ** (-8 * (h + 1) / config.heads) for h in range(config.heads)]
            each = zip(product(*map(range, heads.values())), slopes, strict=True)
            return [
                R.distance(V.I, V.J) <= (far, rows(V.I), rows(V.J)),
                *(Fact(R.slope(*h)[-slope].fixed()) for h, slope in each),
            ]
        case "relative":
            return relative(x, R.relative, BUCKETS, FAR_BUCKET, both=both, heads=tuple(heads))
    return []


def placed(
    word: Expression, token: Atom, y: Atom, config: Config, *, size: int | None = None
) -> tuple[Statements, Expression]:
    """A token's vector with that of its place, where positions are vectors."""
    size = config.size if size is None else size
    if config.positions == "learned":
        return [], word + W.position(V.I)[size,]
    if config.positions != "sinusoidal":
        return [], word
    angle = R[f"{y.relation}_angle"]
    made = (R.special.add_eval(V.I, 0), W.speed[list(speeds(size))].fixed())
    rules: Statements = [(angle(V.I) <= (*made, R.hidden[token.relation](V.I))) | [F.product]]
    waves = alternating(F.sin(angle(V.I)), F.cos(angle(V.I)), size)
    return rules, word + waves


def alternating(a: Expression, b: Expression, size: int) -> Expression:
    """The elements of two vectors interleaved: a₀, b₀, a₁, b₁, ..."""
    return F.reshape(size)(F.transp(F.reshape((2, size // 2))(F.concat(a, b))))


def domains(config: Any, **more: int) -> dict[Variable, int]:
    """The domains of heads and of positions."""
    found = {V.H: config.heads} | {V[name]: size for name, size in more.items()}
    found |= {V.I: config.length} if config.positions == "learned" else {}
    return found | ({V.B: BUCKETS} if config.positions == "relative" else {})


def ended(x: Atom, y: Atom, config: Config, *, norm: Norm = layer_norm) -> Statements:
    """The end of a stack: with norms inside there is one more."""
    if config.norm == "pre":
        return norm(x, y, config.size, eps=config.eps)
    return [y(V.I) <= x(V.I)]
