"""Strided and dilated graphs: tokens of one residue class attend only to one another.

If i ≡ j (mod s) for all pairs, the s classes are s short sequences side by side, and a strided
graph is dense or causal inside each. The classes are views with longer strides: nothing is moved.
"""

from dataclasses import dataclass, replace
from math import gcd

import numpy as np
from torch import Tensor

from edgewise.graphs.algebra import union
from edgewise.graphs.cache import cached
from edgewise.graphs.pattern import Pattern
from edgewise.graphs.patterns.causal import causal
from edgewise.graphs.patterns.full import full
from edgewise.graphs.residues import ResidueGroup, residue_groups, symbolic_step
from edgewise.kernels.attention import dense
from edgewise.kernels.attention.contract import (
    Case,
    Grads,
    Implementation,
    Saved,
    Terms,
    cached_by_case,
    is_causal,
    is_full,
)
from edgewise.kernels.attention.flash import flash, flash_backward
from edgewise.kernels.attention.terms import TermGrads
from edgewise.kernels.attention.triton import blocks as triton_blocks
from edgewise.layouts import Rows, by_residue, common_step
from edgewise.scores.nodes import Call, I, J, Leaf, Node, Number, by_distance, replaced

name = "permuted"
EVEN = 64  # tokens of a class, or a multiple, at lengths that models are run at again and again
nesting = 1  # its parts are computed by kernels below


@dataclass(frozen=True, repr=False)
class residue_class(Pattern):
    """{(t, u) : (r + s·t, r + s·u) ∈ pattern} for residue r of step s, in n×m tokens of it."""

    pattern: Pattern
    step: int
    residue: int
    n: int
    m: int

    def compute_rows(self, n: int, m: int) -> Rows:
        return _classes(self.pattern, self.n, self.m, self.step)[self.residue]


def refuses(case: Case) -> str | None:
    if not case.work:
        return "there are no pairs"
    if step_of(case.graph, case.n, case.m) < 2:
        return "there is no step s > 1 such that all pairs have i ≡ j (mod s)"
    if groups(case.graph, case.n, case.m) is None:
        return "the residue classes have different graphs"
    if not by_distance(case.score):
        return "the score depends on more than i - j: classes would need scores of their own"
    return case.lacks("score")


def cost(case: Case) -> float:
    total = 4.0 * case.b * case.g * (case.n + case.m)
    known: dict[tuple[Pattern, Implementation], float] = {}
    for group, inner, kernel, _ in _plan(case):
        tokens, like = inner.b * (inner.n + inner.m), (group.graph, kernel)
        if like not in known:
            known[like] = kernel.cost(inner) / tokens
        total += known[like] * tokens  # lengths of classes differ by one
    return total


@cached
def step_of(graph: Pattern, n: int, m: int) -> int:
    if residue_groups(graph, n, m) is not None:
        return symbolic_step(graph)
    if isinstance(graph, union):
        return gcd(*(step_of(member, n, m) for member in graph.members))
    if graph.bitmap is not None:
        return 1
    return common_step(graph.rows(n, m))


@cached
def _classes(graph: Pattern, n: int, m: int, step: int) -> list[Rows]:
    rows = by_residue(graph.rows(n, m), step)
    out, top, left = [], 0, 0
    for residue in range(step):
        high, wide_ = -(-(n - residue) // step), -(-(m - residue) // step)
        part = rows.between(top, top + high)
        out.append(replace(part, m=wide_, start=part.start - left, stop=part.stop - left))
        top, left = top + high, left + wide_
    return out


@cached
def groups(graph: Pattern, n: int, m: int) -> tuple[ResidueGroup, ...] | None:
    """The classes in runs of equal size; None if two of a run have different graphs."""
    written = residue_groups(graph, n, m)
    if written is not None:
        return written
    step = step_of(graph, n, m)
    if step < 2 or step > min(n, m):
        return None
    classes = _classes(graph, n, m, step)
    out: list[ResidueGroup] = []
    for residue, rows in enumerate(classes):
        if out and (out[-1].n, out[-1].m) == (rows.n, rows.m):
            if not _same(classes[out[-1].first], rows):
                return None
            out[-1] = replace(out[-1], last=residue + 1)
        else:
            inner = _named(rows)
            if inner is None:
                inner = residue_class(graph, step, residue, n, m)
            out.append(ResidueGroup(residue, residue + 1, rows.n, rows.m, inner))
    return tuple(out)


def _named(rows: Rows) -> Pattern | None:
    return full() if is_full(rows) else causal() if is_causal(rows) else None


def _same(a: Rows, b: Rows) -> bool:
    names = ("ptr", "start", "stop", "step")
    if _alike(a, b, (*names, "top", "dstart", "dstop")):
        return True
    return _alike(a.expand(), b.expand(), names)


def _alike(a: Rows, b: Rows, names: tuple[str, ...]) -> bool:
    return all(np.array_equal(getattr(a, x), getattr(b, x)) for x in names)


def _inner(case: Case, group: ResidueGroup) -> Case:
    """Tokens of a class are `step` apart: what counts distances counts that many at once."""
    b, step = case.b * group.classes, step_of(case.graph, case.n, case.m)
    apart: dict[Leaf, Node] = {place: Call("mul", (place, Number(step))) for place in (I, J)}
    score = replaced(case.score, apart)
    features = case.features | {"lse"}  # by which the classes are put together
    return replace(
        case, b=b, n=group.n, m=group.m, graph=group.graph, score=score, features=features
    )


@cached_by_case
def _plan(case: Case) -> tuple[tuple[ResidueGroup, Case, Implementation, bool], ...]:
    """Each group with its case, the kernel for it, and whether that is causal."""
    out = []
    chosen: dict[Pattern, Implementation] = {}
    for group in groups(case.graph, case.n, case.m) or ():
        inner = _inner(case, group)
        kernel = chosen.get(group.graph)
        if kernel is None or kernel.refuses(inner) is not None:
            kernel = chosen[group.graph] = _kernel(case, inner)
        out.append((group, inner, kernel, not inner.is_full))
    return tuple(out)


def _kernel(case: Case, inner: Case) -> Implementation:
    """Where classes are dense nothing is cheaper, and nothing else needs to be looked at."""
    if dense.refuses(inner) is not None:
        from edgewise.kernels.attention.registry import cheapest

        return cheapest(inner, nesting).implementation
    return triton_blocks if _odd(case) and triton_blocks.refuses(inner) is None else dense


def _odd(case: Case) -> bool:
    """Whether lengths are such that another call will have others. cuDNN, which is what is dense
    on a GPU, builds a plan for every new length, about 70 ms for each pass of each group."""
    even = EVEN * step_of(case.graph, case.n, case.m)
    return case.device == "cuda" and bool(case.n % even or case.m % even)


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    step, plan = step_of(case.graph, case.n, case.m), _plan(case)
    outs, sums = [], []
    for group, inner, chosen, is_causal_ in plan:
        queries, keys, values = _taken(q, group, step), _keys(k, group, step), _keys(v, group, step)
        if chosen is dense and case.g == 1:
            out, lse = flash(queries[:, 0], keys, values, case.scale, causal=is_causal_, mask=None)
            out, lse = out[:, None], lse[:, None]
        else:
            flat = (_flat(queries), keys.flatten(0, 1), values.flatten(0, 1))
            of_classes = Terms(tables=_spread(case, group, terms.tables))
            out, lse = (_split(x, case) for x in chosen.forward(inner, *flat, of_classes))
        outs.append(out)
        sums.append(lse[..., None])
    found = tuple(part[0] for part in plan)
    out, lse = _joined(outs, found, step, case.n), _joined(sums, found, step, case.n)[..., 0]
    return out, lse.contiguous()


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    step, plan = step_of(case.graph, case.n, case.m), _plan(case)
    total = TermGrads(case, saved.terms)
    grads: list[list[Tensor]] = [[], [], []]
    lse = saved.lse[..., None]
    for group, inner, chosen, is_causal_ in plan:
        q, out, sums, g = (_taken(x, group, step) for x in (saved.q, saved.out, lse, dout))
        k, v = _keys(saved.k, group, step), _keys(saved.v, group, step)
        if chosen is dense and case.g == 1:
            state = (q[:, 0], k, v, out[:, 0], sums[:, 0, ..., 0])
            dense_ = flash_backward(g[:, 0], state, case.scale, causal=is_causal_, mask=None)
            parts = [x[:, None] for x in dense_]
        else:
            terms = Terms(tables=_spread(case, group, saved.terms.tables))
            flat = (_flat(q), k.flatten(0, 1), v.flatten(0, 1), terms)
            held = Saved(*flat, _flat(out), _flat(sums)[..., 0])
            found_ = chosen.backward(inner, held, _flat(g))
            _gathered(case, group, total, found_.terms)
            parts = [
                _split(found_.q, case),
                _split(found_.k[:, None], case),
                _split(found_.v[:, None], case),
            ]
        for grad, part in zip(grads, parts, strict=True):
            grad.append(part)
    found = tuple(part[0] for part in plan)
    dq = _joined(grads[0], found, step, case.n)
    dk, dv = (_joined(grad, found, step, case.m)[:, 0] for grad in grads[1:])
    return Grads(dq, dk, dv, total.terms())


def _spread(case: Case, group: ResidueGroup, tables: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Tables with a row for each head of each class."""
    heads = case.b * case.g
    rows = (t if len(t) == 1 else t.repeat(heads // len(t), 1) for t in tables)
    return tuple(
        t
        if len(t) == 1
        else t.view(case.b, 1, case.g, -1).expand(-1, group.classes, -1, -1).flatten(0, 2)
        for t in rows
    )


def _gathered(case: Case, group: ResidueGroup, total: TermGrads, found: Terms) -> None:
    for sum_, grad in zip(total.tables, found.tables, strict=True):
        if len(sum_) > 1 or len(grad) > 1:
            grad = grad.view(case.b, group.classes, case.g, -1).sum(1).flatten(0, 1)
            grad = grad.view(-1, *sum_.shape).sum(0)
        sum_ += grad


def _taken(x: Tensor, group: ResidueGroup, step: int) -> Tensor:
    """(b, g, n, d) as (b, g, classes, tokens of each, d): a view."""
    return _classes_of(x, group.first, group.last, step)


def _keys(x: Tensor, group: ResidueGroup, step: int) -> Tensor:
    """(b, m, d) as (b, classes, tokens of each, d): a view."""
    return _classes_of(x[:, None], group.first, group.last, step)[:, 0]


def _classes_of(x: Tensor, first: int, last: int, step: int) -> Tensor:
    (b, g, n, d), (sb, sg, sn, sd) = x.shape, x.stride()
    tokens = -(-(n - first) // step)
    shape, strides = (b, g, last - first, tokens, d), (sb, sg, sn, sn * step, sd)
    return x.as_strided(shape, strides, x.storage_offset() + first * sn)


def _flat(x: Tensor) -> Tensor:
    """(b, g, classes, tokens, d) as kernels see it: (b · classes, g, tokens, d)."""
    return x.transpose(1, 2).flatten(0, 1)


def _split(x: Tensor, case: Case) -> Tensor:
    return x.unflatten(0, (case.b, -1)).transpose(1, 2)


def _joined(parts: list[Tensor], found: tuple[ResidueGroup, ...], step: int, n: int) -> Tensor:
    """The tokens of all classes in their own order again."""
    if len(found) == 1:
        return parts[0].transpose(2, 3).flatten(2, 3)
    out = parts[0].new_empty(*parts[0].shape[:2], n, parts[0].shape[-1])
    for part, group in zip(parts, found, strict=True):
        _classes_of(out, group.first, group.last, step).copy_(part)
    return out
