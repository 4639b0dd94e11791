"""Matrices applied to all rows of a relation: one product for those that read the same rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor

from edgewise.ground.rules import GroundRule
from edgewise.kernels.products import Products
from edgewise.language import nodes
from edgewise.language.statements import atoms
from edgewise.run.body import place
from edgewise.run.column import Column
from edgewise.run.state import State
from edgewise.run.tape.whole import whole


def is_matrix(weight: nodes.Weight, state: State) -> bool:
    """Whether a weight, or each member of a family, is a matrix that takes vectors."""
    shape = state.weights[str(weight.name)].shape[len(weight.keys) :]
    return len(shape) == 2 and shape[1] > 1


def projected(weight: nodes.Weight, relation: str, source: Column, state: State) -> Tensor | None:
    """All rows of a relation times a matrix, or times all matrices of a family side by side.

    The matrices that the model applies to one relation are one product, computed once.
    """
    if source.rank != 1 or not is_matrix(weight, state):
        return None
    key = (relation, str(weight.name))
    if key not in state.shared:
        names = state.projections.get(relation, ())
        names = names if weight.name in names else (str(weight.name),)
        matrices = [state.weights[n].to(state.dtype).flatten(0, -2) for n in names]
        if any(m.shape[1] != source.shape[0] for m in matrices):
            return None
        parts = _times(source.data, *matrices, apart=state.few)
        state.shared.update(zip(((relation, n) for n in names), parts, strict=True))
    return state.shared[key]


def _times(x: Tensor, *matrices: Tensor, apart: bool) -> Sequence[Tensor]:
    """All rows times each matrix; for a few rows, laying matrices side by side would not pay."""
    if apart:
        return _few(x, *matrices)
    if len(matrices) == 1:
        return (torch.nn.functional.linear(x, matrices[0]),)
    together = torch.nn.functional.linear(x, torch.cat(matrices))
    return together.split([len(m) for m in matrices], -1)


def _products(x: Tensor, *matrices: Tensor) -> list[Tensor]:
    return Products(matrices)(x)


_few = whole(_products, prepare=lambda *matrices: Products(matrices))


def projected_weights(ground: GroundRule, layouts: Collection[int]) -> Iterator[tuple[str, str]]:
    """The matrices that a rule applies to whole relations: (relation, weight).

    `layouts` are the places of atoms that meet every member of a family.
    """
    for atom in atoms(ground.rule.body):
        if isinstance(atom, nodes.Atom) and atom.carries_value and atom.weight is not None:
            at = place(ground, atom)
            plain = ground.rows.get(at) is None and not atom.weight.keys
            if plain or at in layouts:
                yield atom.relation, str(atom.weight.name)
