"""A union cut into disjoint parts, a kernel for each, merged by log-sum-exp."""

from dataclasses import replace
from functools import reduce
from itertools import permutations, product
from math import prod
from operator import and_
from typing import NamedTuple

import torch
from torch import Tensor

from edgewise.graphs.algebra import Derived, intersection, union
from edgewise.graphs.cache import cached
from edgewise.graphs.pattern import Pattern
from edgewise.kernels.attention.contract import (
    EDGE_AXIS,
    EDGE_TERMS,
    FIXED,
    NO_TERMS,
    Case,
    Grads,
    Implementation,
    Saved,
    Terms,
    cached_by_case,
)
from edgewise.kernels.attention.errors import NoKernel
from edgewise.kernels.attention.materialised import Merged
from edgewise.kernels.attention.terms import TermGrads, numbers, places

name = "union"
nesting = 2  # its parts are computed by kernels below
MOST = 3
MERGED = 10.0  # on a GPU: the time to merge a feature of a part's row, in pairs of a dense product
WRITTEN_OUT = 64  # an intersection of unions has as many members as all choices of theirs


def refuses(case: Case) -> str | None:
    if not case.work:
        return "there are no pairs"
    count = len(members(case.graph))
    if count < 2:
        return "the graph is not written as a union"
    if count > MOST:
        return f"the graph is a union of {count}, more than {MOST}"
    if case.device == "cuda" and case.dtype.itemsize > 2:
        return "on a GPU it computes in float16 and bfloat16 only"
    if case.features - {"lse"} and (reason := _part_refuses(case)):
        return reason
    return case.lacks(*EDGE_TERMS)


def _part_refuses(case: Case) -> str | None:
    """Why no kernel takes a part with all the terms of the case."""
    try:
        _parts(case)
    except NoKernel:
        return (
            f"no kernel takes its parts with {' and '.join(sorted(case.features - {'lse', FIXED}))}"
        )
    return None


def least(case: Case) -> float:
    """What it costs at least on a GPU, where putting outputs together is most of it."""
    count = len(members(case.graph))
    if case.device != "cuda" or not 1 < count <= MOST:
        return 0.0
    return case.work + MERGED * case.dv * count * case.b * case.g * case.n


def cost(case: Case) -> float:
    return _plan(replace(case, features=case.features | {"lse"})).cost


def members(graph: Pattern) -> tuple[Pattern, ...]:
    """Patterns whose union the graph is, as it is written: (a | b) & c gives a & c and b & c."""
    match graph:
        case Derived():
            return members(graph.definition())
        case union():
            return tuple(part for member in graph.members for part in members(member))
        case intersection():
            parts = [members(member) for member in graph.members]
            if max(map(len, parts)) == 1 or prod(map(len, parts)) > WRITTEN_OUT:
                return (graph,)
            return tuple(reduce(and_, chosen) for chosen in product(*parts))
    return (graph,)


def _disjoint(several: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    out, before = [several[0]], several[0]
    for member in several[1:]:
        out.append(member - before)
        before = before | member
    return tuple(out)


class UnionPlan(NamedTuple):
    """Disjoint parts with their kernels; `graphs` are those of the parts, with their caches."""

    parts: tuple[tuple[Implementation, Case], ...]
    cost: float
    graphs: tuple[Pattern, ...]


@cached_by_case
def _plan(case: Case) -> UnionPlan:
    """In the order of members that costs least."""
    from edgewise.kernels.attention.registry import cheapest

    best: UnionPlan | None = None
    rows = case.b * case.g * case.n
    for several in _orders(case):
        graphs = _disjoint(several)
        parts = [replace(case, graph=graph) for graph in graphs]
        chosen = [(cheapest(part, nesting).implementation, part) for part in parts]
        cost = sum(kernel.cost(part) for kernel, part in chosen)
        cost += (MERGED * case.dv if case.device == "cuda" else 16.0) * len(parts) * rows
        if best is None or cost < best.cost:
            best = UnionPlan(tuple(chosen), cost, graphs)
    assert best is not None
    return best


def _orders(case: Case) -> list[tuple[Pattern, ...]]:
    """Every order of the members; those that are scattered stay last, because what is left of a
    member after them is as scattered, and takes long to work out."""
    several = members(case.graph)
    pieces = [len(member.rows(case.n, case.m).start) for member in several]
    calm = [x for x, count in zip(several, pieces, strict=True) if count < case.n]
    wild = [x for x, count in zip(several, pieces, strict=True) if count >= case.n]
    return [(*a, *b) for a in permutations(calm) for b in permutations(wild)]


def forward(case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    merged = Merged(case.n)
    for kernel, part in _parts(case):
        of_part = terms if terms is NO_TERMS else _of_part(case, part, terms)
        merged.add(*kernel.forward(part, q, k, v, of_part))
    return merged.out.to(q.dtype), merged.lse


def backward(case: Case, saved: Saved, dout: Tensor) -> Grads:
    parts = []
    for kernel, part in _parts(case):
        inner = saved
        if saved.terms is not NO_TERMS:
            inner = replace(saved, terms=_of_part(case, part, saved.terms))
        wider = part if part.dv == case.dv else replace(part, dv=case.dv)
        parts.append((part, kernel.backward(wider, inner, dout)))
    (_, first), *others = parts
    dq, dk, dv = first.q, first.k, first.v
    for _, other in others:
        dq, dk, dv = dq + other.q, dk + other.k, dv + other.v
    if saved.terms is NO_TERMS:
        return Grads(dq, dk, dv, NO_TERMS)
    return Grads(dq, dk, dv, _together(case, saved.terms, [(p, g.terms) for p, g in parts]))


@cached_by_case
def _parts(case: Case) -> tuple[tuple[Implementation, Case], ...]:
    return _plan(replace(case, features=case.features | {"lse"})).parts


@cached
def _numbers(graph: Pattern, n: int, m: int, part: Pattern, device: torch.device) -> Tensor:
    """The numbers of a part's edges among those of the graph."""
    return numbers(graph, n, m, *places(part, n, m, device))


def _of_part(case: Case, part: Case, terms: Terms) -> Terms:
    if case.features.isdisjoint(EDGE_AXIS):
        return terms

    def taken(name: str) -> Tensor | None:
        term: Tensor | None = getattr(terms, name)
        if term is None:
            return None
        at = _numbers(case.graph, case.n, case.m, part.graph, term.device)
        return term.index_select(EDGE_AXIS[name], at)

    of_edges = (taken(name) for name in EDGE_AXIS)
    return Terms.of([terms.bias, *of_edges, *terms.tables], terms.drop)


def _together(case: Case, terms: Terms, parts: list[tuple[Case, Terms]]) -> Terms:
    total = TermGrads(case, terms)
    for part, found in parts:
        if total.bias is not None and found.bias is not None:
            total.bias += found.bias
        for sum_, table in zip(total.tables, found.tables, strict=True):
            sum_ += table
        for name, axis in EDGE_AXIS.items():
            sum_, grad = getattr(total, name), getattr(found, name)
            if sum_ is not None and grad is not None:
                at = _numbers(case.graph, case.n, case.m, part.graph, grad.device)
                sum_.index_copy_(axis, at, grad.to(sum_.dtype))
    return total.terms()
