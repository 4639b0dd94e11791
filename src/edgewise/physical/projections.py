"""Matrices applied to all rows of a relation, with the vectors that are added."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor
from torch.nn.functional import linear

from edgewise.language import nodes
from edgewise.physical.column import Column
from edgewise.physical.state import State


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

    Computed once, with what it is added to. None where that is not one product.
    """
    if source.rank != 1 or not is_matrix(weight, state):
        return None
    name, vector = str(weight.name), None if bias is None else str(bias.name)
    if vector is not None and state.weights[vector].shape != state.weights[name].shape[:-1]:
        return None
    key = (relation, name, vector)
    if key not in state.shared:
        matrix = state.weights[name].to(state.dtype).flatten(0, -2)
        if matrix.shape[1] != source.shape[0]:
            return None
        added = None if vector is None else state.weights[vector].to(state.dtype).flatten()
        state.shared[key] = linear(source.data, matrix, added)
    return state.shared[key]
