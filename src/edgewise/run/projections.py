"""Matrices applied to all rows of a relation: one product for those that read the same rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from edgewise.ground.rules import GroundRule
from edgewise.kernels.products import Products
from edgewise.language import nodes
from edgewise.language.statements import atoms, combination
from edgewise.physical.symbols import opaque
from edgewise.run.body import place
from edgewise.run.column import Column
from edgewise.run.state import Product, State


def is_matrix(weight: nodes.Weight, state: State) -> bool:
    """Whether a weight, or each member of a family, is a matrix that takes vectors."""
    shape = state.weights[str(weight.name)].shape[len(weight.keys) :]
    return len(shape) == 2 and shape[1] > 1


def values_of(
    function: nodes.Function,
    items: Sequence[nodes.Expression],
    one: Callable[[nodes.Expression], Column],
    both: Callable[[nodes.Atom, nodes.Weight], Column | None],
) -> list[Column]:
    """The value of each item, or of both of rows times a matrix and what is added to them."""
    found: dict[int, Column] = {}
    added: set[int] = set()
    for mapped, bias in _affine(function, items):
        together = both(mapped, bias)
        if together is not None:
            found[id(mapped)] = together
            added.add(id(bias))
    rest = [item for item in items if id(item) not in added]
    return [found[id(item)] if id(item) in found else one(item) for item in rest]


def _affine(
    function: nodes.Function, items: Sequence[nodes.Expression]
) -> list[tuple[nodes.Atom, nodes.Weight]]:
    """Rows times a matrix and the vector added to them, in a sum with as many of one as of the
    other."""
    mapped = [i for i in items if isinstance(i, nodes.Atom) and i.weight is not None]
    added = [i for i in items if isinstance(i, nodes.Weight)]
    if function.name != "sum" or len(mapped) != len(added):
        return []
    return [
        (atom, bias)
        for atom, bias in zip(mapped, added, strict=True)
        if atom.weight is not None and atom.weight.keys == bias.keys and bias.weight is None
    ]


def projected(
    weight: nodes.Weight,
    relation: str,
    source: Column,
    state: State,
    bias: nodes.Weight | None = None,
) -> Tensor | None:
    """All rows of a relation times a matrix, or times all matrices of a family side by side.

    The matrices that the model applies to one relation are one product, computed once, each with
    what it is added to. None where that is not one product.
    """
    if source.rank != 1 or not is_matrix(weight, state):
        return None
    name, vector = str(weight.name), None if bias is None else str(bias.name)
    if vector is not None and state.weights[vector].shape != state.weights[name].shape[:-1]:
        return None
    key = (relation, name, vector)
    if key not in state.shared:
        products = state.projections.get(relation, ())
        together = products if (name, vector) in products else ((name, vector),)
        matrices = [state.weights[n].to(state.dtype).flatten(0, -2) for n, _ in together]
        if any(m.shape[1] != source.shape[0] for m in matrices):
            return None
        vectors = [None if v is None else state.weights[v].to(state.dtype) for _, v in together]
        found = _times(source.data, matrices, vectors, apart=state.few)
        state.shared.update(zip(((relation, *one) for one in together), found, strict=True))
    return state.shared[key]


def _times(
    x: Tensor, matrices: list[Tensor], vectors: list[Tensor | None], apart: bool
) -> Sequence[Tensor]:
    """All rows times each matrix, and a vector more.

    For a few rows, laying matrices side by side would not pay.
    """
    flat = [None if v is None else v.flatten() for v in vectors]
    if apart:
        parts = _few(x, *matrices)
        return [y if v is None else y + v for y, v in zip(parts, flat, strict=True)]
    if len(matrices) == 1:
        return (linear(x, matrices[0], flat[0]),)
    bias = None
    if any(v is not None for v in flat):
        pairs = zip(matrices, flat, strict=True)
        bias = torch.cat([m.new_zeros(len(m)) if v is None else v for m, v in pairs])
    return linear(x, torch.cat(matrices), bias).split([len(m) for m in matrices], -1)


@opaque(
    like=lambda x, *matrices: [
        torch.empty(*x.shape[:-1], len(m), dtype=x.dtype, device="meta") for m in matrices
    ],
    prepare=lambda *matrices: Products(matrices),
)
def _few(x: Tensor, *matrices: Tensor) -> list[Tensor]:
    return Products(matrices)(x)


def products_of(ground: GroundRule, layouts: Collection[int]) -> Iterator[tuple[str, Product]]:
    """The matrices that a rule applies to whole relations: (relation, matrix and what is added).

    `layouts` are the places of atoms that meet every member of a family.
    """
    sums = dict(_sums(ground.rule))
    for atom in atoms(ground.rule):
        if isinstance(atom, nodes.Atom) and atom.carries_value and atom.weight is not None:
            at = place(ground, atom)
            plain = ground.rows.get(at) is None and not atom.weight.keys
            if plain or at in layouts:
                yield atom.relation, (str(atom.weight.name), sums.get(id(atom)))


def _sums(rule: nodes.Rule) -> Iterator[tuple[int, str]]:
    """Atoms with a matrix (by identity) and the vector each is added to."""
    values = [item for item in rule.body if item.carries_value]
    groups: list[tuple[nodes.Function, Sequence[nodes.Expression]]]
    groups = [(combination(rule.functions), values)]
    while groups:
        function, items = groups.pop()
        for mapped, added in _affine(function, items):
            yield id(mapped), str(added.name)
        groups += [(i.function, i.operands) for i in items if isinstance(i, nodes.Apply)]
