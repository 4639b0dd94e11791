"""What a model attends to, as a weighted graph for each layer and head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.attention_graphs.calls import AttentionCall, RowBlock
from edgewise.attention_graphs.errors import BadEdgeChoice, NoAttention, NoSuchHead
from edgewise.attention_graphs.table import WeightedEdges
from edgewise.errors import caller, counted
from edgewise.notebook import html_table, short_value, side_by_side, svg_map

MAPPED, MAPS = 64, 8  # tokens, and heads, that a notebook shows as maps
THRESHOLD = 0.05  # so that a query has at most 20 edges in a head
ROLLOUT = 1 << 22  # numbers of the rows of a rollout that are computed together


@dataclass(frozen=True)
class HeadSummary:
    """Means over the queries of one head: `entropy` in nats, `distance` |i - j|, `own`, the weight
    of the query itself, `previous`, of the token before, and `following`, of the one after; `sink`
    is the key with the largest mean weight, `sink_share`; `peak` the mean of the largest weights.

    >>> from edgewise import attention_graph
    >>> found = attention_graph([torch.full((1, 4, 4), 0.25)], tokens=list("abcd"))
    >>> (head,) = found.summary()
    >>> round(head.own, 2), round(head.distance, 2)
    (0.25, 1.25)
    """

    layer: int
    head: int
    entropy: float
    distance: float
    peak: float
    own: float
    previous: float
    following: float
    sink: int
    sink_share: float


@dataclass(frozen=True, eq=False)
class AttentionGraph:
    """The attention of every layer to one text, recomputed when it is read, never n×n.

    `calls` are the layers in the order in which they run, `names` what they are called.

    >>> import torch
    >>> from edgewise import F, Program, R, V, attention_graph
    >>> weights = (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I))) | [
    ...     F.product,
    ...     F.softmax_agg(agg_terms=[V.J]),
    ... ]
    >>> out = (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product]
    >>> found = attention_graph(
    ...     Program([weights, out]).compile(R.h), x=torch.eye(3), tokens=["a", "b", "c"]
    ... )
    >>> found.layers, found.heads, found.names, tuple(found.weights(0, 0).shape)
    (1, (1,), ('h',), (3, 3))
    >>> keys, row = found.weights_of(0, 0, query=1)
    >>> keys.tolist(), len(found.rollout(queries=[0]).key)
    ([0, 1, 2], 3)
    """

    tokens: tuple[str, ...]
    calls: tuple[AttentionCall, ...]

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return len(self.calls)

    @property
    def heads(self) -> tuple[int, ...]:
        """How many heads each layer has."""
        return tuple(call.heads for call in self.calls)

    @property
    def names(self) -> tuple[str, ...]:
        """The relation or module of each layer."""
        return tuple(call.name for call in self.calls)

    def __repr__(self) -> str:
        layers, heads = counted(self.layers, "layer"), counted(sum(self.heads), "head")
        return f"AttentionGraph({len(self.tokens):,} tokens, {layers}, {heads})"

    def _repr_html_(self) -> str:
        """The weights of the first heads as maps; of a long text, what the heads attend to."""
        pairs = [(layer, head) for layer, count in enumerate(self.heads) for head in range(count)]
        if len(self.tokens) > MAPPED:
            header = ["layer", "head", "entropy", "distance", "sink", "its share"]
            rows = (
                (h.layer, h.head, *map(short_value, (h.entropy, h.distance)), self.tokens[h.sink],
                 f"{h.sink_share:.0%}")
                for h in self.summary()
            )  # fmt: skip
            return html_table(repr(self), header, rows, len(pairs))
        maps = [
            svg_map(self.weights(layer, head).numpy(), f"{self.names[layer]}, head {head}")
            for layer, head in pairs[:MAPS]
        ]
        more = f", the first {MAPS}" if len(pairs) > MAPS else ""
        return side_by_side(maps, repr(self) + more)

    def edges(
        self,
        *,
        layer: int | None = None,
        head: int | None = None,
        threshold: float | None = None,
        top: int | None = None,
    ) -> WeightedEdges:
        """The edges whose weight is at least `threshold`, and of each query at most the strongest
        `top`; without either, those of at least 0.05.

        >>> from edgewise import attention_graph
        >>> weights = torch.tensor([[[0.9, 0.1], [0.4, 0.6]]])
        >>> attention_graph([weights]).edges(threshold=0.3).weight.tolist()
        [0.8999999761581421, 0.4000000059604645, 0.6000000238418579]
        """
        low, top = _choice(threshold, top)
        parts = [
            _table_part(at, first, call, block, low, top)
            for at in self._layers(layer)
            for first, call in self._parts(at, head)
            for block in call.blocks()
        ]
        return _sorted_table(parts, self.tokens)

    def weights(self, layer: int, head: int) -> Tensor:
        """The n×m matrix of one head, for short texts and tests."""
        from edgewise.graphs.checks import check_memory

        (at,) = self._layers(layer)
        ((_, call),) = self._parts(at, head)
        size = len(self.tokens)
        check_memory(size * size, f"weights of {size:,}×{size:,} pairs")
        out = torch.zeros(size, size, dtype=torch.promote_types(call.q.dtype, torch.float32))
        for block in call.blocks():
            rows = call.query_tokens(block)
            keys = block.keys.expand(len(rows), -1)
            # places without a key weigh 0 and repeat key 0: add, do not write
            out.index_put_((rows[:, None].expand(keys.shape), keys), block.weights[0], True)
        return out

    def weights_of(self, layer: int, head: int, query: int) -> tuple[Tensor, Tensor]:
        """The keys of one query, in increasing order, and its weights: one row is computed."""
        (at,) = self._layers(layer)
        ((_, call),) = self._parts(at, head)
        token = self._token(query)
        if call.query_order is None:
            place = token if token < call.n else -1
        else:
            found = (call.query_order == token).nonzero().flatten()
            place = int(found[0]) if len(found) else -1
        if place < 0:  # padding
            return torch.zeros(0, dtype=torch.long), torch.zeros(0)
        block = call.block(place, place + 1)
        order = block.keys[0].argsort()
        return block.keys[0][order], block.weights[0, 0][order]

    def summary(self, *, layer: int | None = None) -> list[HeadSummary]:
        """Entropy, distance and sink of each head.

        >>> from edgewise import attention_graph
        >>> (one,) = attention_graph([torch.eye(4)[None]]).summary()
        >>> one.entropy, one.distance, one.own
        (0.0, 0.0, 1.0)
        """
        found = []
        for at in self._layers(layer):
            for first, call in self._parts(at, None):
                found += _summaries(at, first, call, len(self.tokens))
        return found

    def rollout(
        self,
        *,
        threshold: float | None = None,
        top: int | None = None,
        residual: float = 0.5,
        queries: Sequence[int] | None = None,
    ) -> WeightedEdges:
        """Attention joined over layers (Abnar & Zuidema 2020): Π_l (r·I + (1 - r)·mean over heads
        of A_l), for the residual share r; of all `queries`, or some.
        """
        low, top = _choice(threshold, top)
        if not 0 <= residual <= 1:
            raise BadEdgeChoice(
                f"`residual` is a share from 0 to 1, got {residual}", caller(), "0.5 is usual"
            )
        n = len(self.tokens)
        self._check_square()
        wanted = list(range(n)) if queries is None else [self._token(i) for i in queries]
        parts, step = [], max(ROLLOUT // max(n, 1), 1)
        for first in range(0, len(wanted), step):
            rows = torch.tensor(wanted[first : first + step])
            joined = self._rolled(rows, residual)
            i, j, weight = _chosen(joined[None], low, top)
            none = torch.full_like(i[0], -1)
            parts.append((none, none, rows[i[1]], j, weight))
        return _sorted_table(parts, self.tokens)

    def hops(
        self,
        query: int,
        *,
        layer: int | None = None,
        head: int | None = None,
        threshold: float | None = None,
    ) -> Tensor:
        """How many hops from a query each token is, (n,); -1 where there is no path.

        A hop follows an edge of at least `threshold`: in one layer, hop after hop in its graph
        (of one head, or of all); without a layer, hop t in layer L - t, so that after L hops all
        tokens are found that can have changed the query's output.

        >>> from edgewise import attention_graph
        >>> attention_graph([torch.eye(3).roll(1, 1)[None]]).hops(0, layer=0).tolist()
        [0, 1, 2]
        """
        low, _ = _choice(threshold, None)
        found = torch.full((len(self.tokens),), -1)
        found[self._token(query)] = 0
        if layer is None:
            stages = [self.edges(layer=at, head=head, threshold=low) for at in
                      reversed(range(self.layers))]  # fmt: skip
        else:
            stages = [self.edges(layer=layer, head=head, threshold=low)] * len(self.tokens)
        for hop, stage in enumerate(stages, 1):
            reached = found[stage.query] >= 0
            new = stage.key[reached]
            new = new[found[new] < 0]
            if layer is not None and not len(new):
                break
            found[new] = hop
        return found

    def _rolled(self, rows: Tensor, residual: float) -> Tensor:
        """(rows, n): the product of all layers, from the last."""
        n = len(self.tokens)
        left = torch.zeros(len(rows), n, dtype=torch.float64)
        left[torch.arange(len(rows)), rows] = 1.0
        for at in reversed(range(self.layers)):
            out = residual * left
            parts = list(self._parts(at, None))
            for _, call in parts:
                share = (1 - residual) / len(parts)
                for block in call.blocks():
                    own = left[:, call.query_tokens(block)]
                    if bool(own.any()):
                        keys, numbers = block.product(own)
                        out.index_add_(1, keys, share * numbers)
            left = out
        return left

    def _layers(self, layer: int | None) -> list[int]:
        return list(range(self.layers)) if layer is None else [self._layer(layer)]

    def _layer(self, layer: int) -> int:
        return _position(layer, self.layers, "layer", f"the model has {self.layers} layers")

    def _token(self, token: int) -> int:
        count = len(self.tokens)
        return _position(token, count, "token", f"the text has {count} tokens")

    def _parts(self, layer: int, head: int | None) -> Iterator[tuple[int, AttentionCall]]:
        call = self.calls[layer]
        if head is None:
            yield from call.parts()
            return
        at = _position(head, call.heads, "head", f"layer {layer} has {counted(call.heads, 'head')}")
        yield at, call.take(at)

    def _check_square(self) -> None:
        for call in self.calls:
            if call.n != call.m:
                raise NoAttention(
                    f"`{call.name}` attends from {call.n} queries to {call.m} keys",
                    caller(),
                    "a rollout joins layers of self-attention alone",
                )


def _position(at: object, count: int, what: str, there: str) -> int:
    if isinstance(at, bool) or not isinstance(at, int) or not -count <= at < count:
        raise NoSuchHead(
            f"there is no {what} {at!r:.40}: {there}",
            caller(),
            f"{what}s count from 0 to {count - 1}" if count else "it is empty",
        )
    return at % count


def _choice(threshold: float | None, top: int | None) -> tuple[float, int | None]:
    """The least weight and the most edges of a query."""
    if threshold is not None and not (
        isinstance(threshold, int | float) and 0 <= threshold <= 1  # NaN is not
    ):
        raise BadEdgeChoice(
            f"a threshold is a weight from 0 to 1, got {threshold!r:.40}", caller(), "such as 0.05"
        )
    if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
        raise BadEdgeChoice(
            f"`top` is a number of edges of each query, got {top!r:.40}", caller(), "such as 4"
        )
    if threshold is None:
        return (0.0 if top is not None else THRESHOLD), top
    return float(threshold), top


def _chosen(weights: Tensor, low: float, top: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """The indices (2, e) of head and row, the place in the row, and the weights chosen."""
    if top is not None and top < weights.shape[-1]:
        best, at = weights.topk(top, -1)
        h, i, t = ((best > 0) & (best >= low)).nonzero(as_tuple=True)
        return torch.stack([h, i]), at[h, i, t], best[h, i, t]
    h, i, j = ((weights > 0) & (weights >= low)).nonzero(as_tuple=True)
    return torch.stack([h, i]), j, weights[h, i, j]


def _table_part(
    layer: int, first: int, call: AttentionCall, block: RowBlock, low: float, top: int | None
) -> tuple[Tensor, ...]:
    (h, i), place, weight = _chosen(block.weights, low, top)
    keys = block.keys.expand(block.weights.shape[1], -1)
    query = call.query_tokens(block)[i]
    return torch.full_like(h, layer), h + first, query, keys[i, place], weight


def _sorted_table(parts: Sequence[tuple[Tensor, ...]], tokens: tuple[str, ...]) -> WeightedEdges:
    if not parts:
        none = torch.zeros(0, dtype=torch.long)
        return WeightedEdges(none, none, none, none, torch.zeros(0), tokens)
    layer, head, query, key, weight = (torch.cat(column) for column in zip(*parts, strict=True))
    n, heads = max(len(tokens), 1), int(head.max()) + 2 if len(head) else 1
    order = ((((layer + 1) * heads + head + 1) * n + query) * n + key).argsort()
    columns = (layer[order], head[order], query[order], key[order])
    return WeightedEdges(*columns, weight[order].float(), tokens)


def _summaries(layer: int, first: int, call: AttentionCall, n: int) -> list[HeadSummary]:
    """Of the heads of one part, from sums over its blocks."""
    totals = torch.zeros(call.heads, 6, dtype=torch.float64)
    into = torch.zeros(call.heads, n, dtype=torch.float64)
    for block in call.blocks():
        w = block.weights.double()
        i = call.query_tokens(block)[:, None]
        keys = block.keys.expand(len(i), -1)
        apart = (i - keys).abs()
        terms = (
            -torch.special.xlogy(w, w), w * apart, w.amax(-1, keepdim=True) if w.shape[-1] else w,
            w * (apart == 0), w * (i - keys == 1), w * (keys - i == 1),
        )  # fmt: skip
        totals += torch.stack([term.sum((1, 2)) for term in terms], -1)
        into.index_add_(1, keys.flatten(), w.flatten(1))
    means, into = totals / max(call.n, 1), into / max(call.n, 1)
    sinks = into.argmax(-1).tolist() if n else [0] * call.heads
    found = []
    for h, sink in enumerate(sinks):
        entropy, distance, peak, own, previous, following = means[h].tolist()
        share = float(into[h, sink]) if n else 0.0
        found.append(
            HeadSummary(
                layer, first + h, entropy, distance, peak, own, previous, following, sink, share
            )
        )
    return found
