"""Arbitrary edges on a CPU: one fused pass over rows, and for gradients one over columns.

A score that is more than a dot product with factors and biases is computed between two passes,
for all edges at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.attention.contract import EDGE_TERMS, Case, Grads, Saved, Terms, wide
from edgewise.kernels.attention.edges import Edges, edges
from edgewise.kernels.attention.terms import (
    Scores,
    TermGrads,
    Tile,
    kept_edges,
    off_edges,
    on_edges,
    places,
)
from edgewise.kernels.availability import no_numba
from edgewise.kernels.flat import Heads, Rows, heads_of, ready
from edgewise.kernels.pieces import Pieces
from edgewise.kernels.threads import spread
from edgewise.scores.nodes import S

name = "csr"
PAIR = 6.0  # the time of one edge in pairs of a dense product


def refuses(case: Case) -> str | None:
    if reason := no_numba(case.device):
        return reason
    if not case.work:
        return "there are no pairs"
    return case.lacks(*EDGE_TERMS)


def cost(case: Case) -> float:
    return case.b * case.g * (PAIR * case.pairs + 8.0 * case.n) + 2e4


@dataclass(frozen=True, eq=False)
class Asked:
    """One call: its graph, and its tensors as loops take them."""

    case: Case
    plan: Edges
    q: Tensor
    k: Tensor
    v: Tensor
    heads: Heads  # decided once: parts of a call share what they write

    @property
    def scale(self) -> Any:
        return self.q.new_empty(0).numpy().dtype.type(self.case.scale)

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.heads.together, self.q.shape[-1], self.v.shape[-1]

    @property
    def inputs(self) -> list[list[Rows]]:
        shared = (self.heads.shared(x, self.v) for x in (self.k, self.v))
        return [self.heads.rows(self.q, self.v), *shared]

    def without_scores(self) -> "Asked":
        """Where they are known: queries and keys have no features left."""
        return replace(self, q=self.q[..., :0], k=self.k[..., :0])

    def per_edge(self, *terms: Tensor | None) -> list[list[Rows]]:
        """Of (b, g, e)."""
        return [self.heads.rows(None if x is None else x[..., None], self.v) for x in terms]

    def edge_rows(self, *terms: Tensor | None) -> list[list[Rows]]:
        """Of (b, e, width)."""
        return [self.heads.shared(x, self.v) for x in terms]

    def terms(self, terms: Terms) -> list[list[Rows]]:
        kind = self.v.dtype
        keep = kept_edges(self.case, terms, kind)
        scalars = [
            None if x is None else x.detach().to(kind)
            for x in (terms.edge_bias, keep, terms.edge_scale)
        ]
        return [*self.per_edge(*scalars), *self.edge_rows(*self.vectors(terms))]

    def vectors(self, terms: Terms) -> list[Tensor | None]:
        kind = self.v.dtype
        found = (terms.edge_key, terms.edge_value)
        return [None if x is None else ready(x, kind) for x in found]

    def weights(self, terms: Terms, lse: Tensor) -> list[Rows]:
        """Of each edge; the log-sum-exp is filled in."""
        found, lse_rows = self.edge_room(), self.heads.rows(lse, self.v)
        inputs = (*self.inputs[:2], *self.terms(terms)[:4], self.sizes, self.scale, False)
        self.run(_loops().weigh, self.plan.rows, *inputs, lse_rows, found)
        return found

    def weights_again(self, lse: Tensor) -> list[Rows]:
        """The same without terms, in the order of columns, from the log-sum-exp."""
        found, lse_rows = self.edge_room(), self.heads.rows(lse, self.v)
        (q, k, _), none = self.inputs, self.heads.rows(None, self.v)
        inputs = (k, q, none, none, none, none, self.sizes, self.scale, True)
        self.run(_loops().weigh, self.plan.columns, *inputs, lse_rows, found)
        return found

    def edge_room(self) -> list[Rows]:
        return self.heads.rows(self.heads.empty(self.plan.count, 1, self.v), self.v)

    def pull(
        self, pieces: Pieces, x: list[Rows], weights: list[Rows], out: Tensor,
        per_edge: list[Rows] | None = None, turn: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Into `out`, the sums of rows of x, and of edges, times weights."""
        heads = self.heads
        order = (self.plan.edge[:0] if turn is None else turn).numpy()
        extra = heads.rows(None, self.v) if per_edge is None else per_edge
        sizes, results = (heads.together, out.shape[-1]), heads.rows(out, self.v)
        self.run(_loops().pull, pieces, order, x, extra, sizes, weights, results)

    def run(self, loop: Callable[..., None], pieces: Pieces, *arguments: Any) -> None:
        """The loop on all rows (or columns) for all heads."""
        listed = self.plan.index if pieces is self.plan.rows else self.plan.col_row
        graph = (pieces.ptr, pieces.owner, pieces.place, listed.numpy())
        case = self.case
        numbers = case.work * (case.d + case.dv)
        spread(loop, self.heads.calls(graph, *arguments), pieces.ptr, numbers=numbers)


def _asked(case: Case, q: Tensor, k: Tensor, v: Tensor) -> Asked:
    kind = wide(q.dtype)
    q, k, v = (ready(x, kind) for x in (q, k, v))
    heads = heads_of(case.b, case.g, q, k, v)
    return Asked(case, edges(case.graph, case.n, case.m, case.device), q, k, v, heads)


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    asked = _asked(case, q, k, v)
    terms = on_edges(case, terms)
    if case.score != S:
        known = _scores(asked, terms).values()
        terms = replace(terms, edge_bias=known, edge_scale=None, edge_key=None)
        asked = asked.without_scores()
    heads, pieces, like = asked.heads, asked.plan.rows, asked.v
    out, lse = (heads.empty(pieces.results, width, like) for width in (case.dv, 1))
    extra = asked.edge_rows(asked.vectors(terms)[1])[0]
    asked.pull(pieces, asked.inputs[2], asked.weights(terms, lse), out, extra)
    sums, result = pieces.merged(lse[..., 0], out)
    return result.to(q.dtype), sums


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    asked = _asked(case, saved.q, saved.k, saved.v)
    if not case.features - {"lse"}:
        return _without_terms(asked, saved, dout)
    terms, heads, like = on_edges(case, saved.terms), asked.heads, asked.v
    total = TermGrads(case, terms)
    g = heads.ordered(dout, like.dtype)
    known = [saved.lse.to(like.dtype)[..., None], ready(saved.out, like.dtype), g]
    rows = [heads.rows(x, like) for x in known]
    room = torch.empty(heads.count, asked.plan.count, heads.together, 2, dtype=like.dtype)
    inner = _plain if case.score == S else _staged
    dq = inner(asked, rows, room, terms, total)
    pieces, one = asked.plan.columns, replace(heads, g=1)
    dk, dv = (one.empty(pieces.results, width, like)[:, 0] for width in (case.d, case.dv))
    per_edge = asked.edge_rows(*_in_rows(total))
    results = (*(heads.shared(x, like) for x in (dk, dv)), *per_edge)
    read = (asked.plan.edge.numpy(), asked.inputs[0], rows[2], asked.sizes, _pairs(heads, room))
    asked.run(_loops().backward_columns, pieces, *read, *results)
    found = off_edges(case, saved.terms, total.terms())
    kind = saved.q.dtype
    keys, values = (pieces.summed(x).to(kind) for x in (dk, dv))
    return Grads(dq.to(kind), keys, values, found)


def _without_terms(asked: Asked, saved: Saved, dout: Tensor) -> Grads:
    """Weights are computed again, by columns, and gradients take their places."""
    case, heads, plan, like = asked.case, asked.heads, asked.plan, asked.v
    rows, columns, loops = plan.rows, plan.columns, _loops()
    lse, out = saved.lse.to(like.dtype)[..., None], ready(saved.out, like.dtype)
    weights = asked.weights_again(lse)
    g, delta = heads.ordered(dout, like.dtype), heads.empty(case.n, 1, like)
    given, read, found = (heads.rows(x, like) for x in (g, out, delta))
    calls = heads.calls((heads.together, case.dv), given, read, found)
    spread(loops.row_dots, calls, plan.ptr.numpy(), numbers=case.b * case.g * case.n * case.dv)
    one, (q, k, v) = replace(heads, g=1), asked.inputs
    dk, dv = (one.empty(columns.results, width, like)[:, 0] for width in (case.d, case.dv))
    arguments = (v, given, found, asked.sizes, asked.scale, weights)
    asked.run(loops.push, columns, *arguments, heads.shared(dv, like))
    dq = heads.empty(rows.results, case.d, like)
    asked.pull(columns, q, weights, dk[:, None].expand(-1, case.g, -1, -1))
    asked.pull(rows, k, weights, dq, turn=plan.turn)
    kind = saved.q.dtype
    queries, keys, values = rows.summed(dq), columns.summed(dk), columns.summed(dv)
    return Grads(queries.to(kind), keys.to(kind), values.to(kind))


def _plain(
    asked: Asked, rows: list[list[Rows]], room: Tensor, terms: Terms, total: TermGrads
) -> Tensor:
    """dq, and in `room` of each edge its weight and the gradient of its product q·k."""
    heads, pieces = asked.heads, asked.plan.rows
    dq = heads.empty(pieces.results, asked.q.shape[-1], asked.v)
    grads = asked.per_edge(total.edge_bias, total.edge_scale)
    inputs = (*asked.inputs, *asked.terms(terms), asked.sizes, asked.scale, *rows)
    results = (heads.rows(dq, dq), *grads, _pairs(heads, room))
    asked.run(_loops().backward_rows, pieces, *inputs, *results)
    return pieces.summed(dq)


def _staged(
    asked: Asked, rows: list[list[Rows]], room: Tensor, terms: Terms, total: TermGrads
) -> Tensor:
    """The same where the score is computed for all edges at once."""
    heads, pieces = asked.heads, asked.plan.rows
    scores = _scores(asked, terms)
    known = replace(terms, edge_bias=scores.values(), edge_scale=None, edge_key=None)
    none = TermGrads(asked.case, Terms())
    _plain(replace(asked.without_scores(), case=_unscaled(asked.case)), rows, room, known, none)
    ds = room[..., 1].permute(0, 2, 1).reshape(asked.case.b, asked.case.g, -1)
    of_dots = scores.backward(ds, total) * asked.case.scale
    room[..., 1] = of_dots.reshape(heads.count, heads.together, -1).transpose(1, 2)
    dq = heads.empty(pieces.results, asked.case.d, asked.v)
    grads = [(numbers, at + 1, edge, head) for numbers, at, edge, head in _pairs(heads, room)]
    keys = asked.edge_rows(asked.vectors(terms)[0])[0]
    asked.pull(pieces, asked.inputs[1], grads, dq, keys)
    return pieces.summed(dq)


def _unscaled(case: Case) -> Case:
    return replace(case, scale=1.0)


def _scores(asked: Asked, terms: Terms) -> Scores:
    case, plan = asked.case, asked.plan
    dots = torch.empty(case.b, case.g, plan.count, dtype=asked.v.dtype)
    (keys,), (out,) = asked.edge_rows(asked.vectors(terms)[0]), asked.per_edge(dots)
    inputs = (*asked.inputs[:2], keys, asked.sizes, asked.scale)
    asked.run(_loops().scores, plan.rows, *inputs, out)
    i, j = places(case.graph, case.n, case.m, "cpu")
    return Scores(case, terms, Tile(i, j, torch.arange(plan.count)), dots)


def _pairs(heads: Heads, room: Tensor) -> list[Rows]:
    """Of each edge and head, what goes from rows to columns."""
    numbers, edge = room.numpy().reshape(-1), 2 * heads.together
    return [(numbers, at * room.shape[1] * edge, edge, 2) for at in range(heads.count)]


def _in_rows(total: TermGrads) -> list[Tensor | None]:
    """Room for the gradients of edge keys and values, with rows in one stretch."""
    for name in ("edge_key", "edge_value"):
        found = getattr(total, name)
        setattr(total, name, None if found is None else found.contiguous())
    return [total.edge_key, total.edge_value]


def _loops() -> ModuleType:
    from edgewise.kernels.attention import csr_loops

    return csr_loops
