"""Families of weights that an atom's own key decides: once for each row, not each grounding."""

from __future__ import annotations

import torch

from edgewise.ground.index import Grid
from edgewise.ground.rules import GroundRule
from edgewise.language import nodes
from edgewise.language.statements import atoms, weights
from edgewise.language.terms import variables
from edgewise.layouts.segments import Segments


def own_families(item: nodes.Expression) -> nodes.Atom | None:
    """The only atom of an expression, if its keys decide every family of weights in it.

    >>> from edgewise import R, V, W
    >>> own_families(R.z(V.H, V.J)[W.a(V.H)[1, 8]])
    R.z(V.H, V.J)[W.a(V.H)[1, 8]]
    >>> own_families(R.x(V.J)[W.a(V.H)[1, 8]]) is None
    True
    """
    found, families = list(atoms(item)), [w for w in weights(item) if w.keys]
    if len(found) != 1 or not isinstance(found[0], nodes.Atom) or not families:
        return None
    own = {v.name for v in variables(found[0].terms)}
    inside = all(v.name in own for w in families for v in variables(w.keys))
    return found[0] if inside else None


def by_row(ground: GroundRule) -> dict[int, GroundRule]:
    """Place of an atom → the same body with one grounding for each row of that atom.

    Only where that is fewer. Rows that no grounding reads get the first member of each family; the
    result is not used.
    """
    found = {}
    for at, size in ground.sizes.items():
        rows, atom = ground.rows[at], ground.body.literals[at]
        assert isinstance(atom, nodes.Atom)
        own = {v.name for v in variables(atom.terms)}
        families = {
            place: members
            for place, members in ground.rows.items()
            if isinstance(family := ground.body.literals[place], nodes.Weight)
            and own.issuperset(v.name for v in variables(family.keys))
        }
        if rows is None or size >= ground.count or not families:
            continue
        chosen: dict[int, torch.Tensor | None] = {at: None}
        for place, members in families.items():
            members = torch.arange(ground.count) if members is None else members
            own_member = torch.zeros(size, dtype=torch.int64).index_copy(0, rows, members)
            if not torch.equal(own_member[rows], members):
                break  # a row stands for several keys
            chosen[place] = own_member
        if len(chosen) <= len(families):
            continue
        each = Segments(size, torch.arange(size), 1)
        found[at] = GroundRule(ground.body, size, chosen, {}, Grid((size,)), each)
    return found
