"""Facts that are removed: atoms, with variables for all that match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.checks.atoms import ArityMismatch, plain_atom
from edgewise.checks.wording import terms
from edgewise.errors import EdgewiseError, caller, suggest
from edgewise.ground.index import Constants, distinct_rows, rows_of
from edgewise.language import nodes
from edgewise.update.tables import Table


class UnknownFact(EdgewiseError):
    """Only facts of the data can be removed; a misspelt one would be left in silently."""

    code = "unknown-fact"
    example = """\
updating = Program([R.h(V.X) <= R.a(V.X)]).compile(R.h).updating(facts=[R.a(1)[2.0]])
updating.remove([R.a(2)])"""
    instead = """\
updating = Program([R.h(V.X) <= R.a(V.X)]).compile(R.h).updating(facts=[R.a(1)[2.0]])
updating.remove([R.a(1)])"""


def matching(
    atoms: Sequence[Any],
    data: Mapping[str, Table],
    own: Mapping[str, Table],
    constants: Constants,
    arities: Mapping[str, int],
) -> dict[str, Tensor]:
    """The keys of facts that atoms name, by relation; `own` facts are the program's."""
    found: dict[str, list[Tensor]] = {}
    for item in atoms:
        atom = plain_atom(item)
        if atom.relation not in arities:
            raise _unknown_relation(atom, arities)
        if len(atom.terms) != arities[atom.relation]:
            raise ArityMismatch(
                f"`{atom.relation}` has {terms(arities[atom.relation])}, `{atom!r}` has "
                f"{len(atom.terms)}",
                atom.place or caller(),
                "give a constant or a variable for each term",
            )
        table = data.get(atom.relation)
        keys = torch.zeros(0, len(atom.terms), dtype=torch.int64)
        if table is not None:
            keys = _matches(atom, table, constants)
        if not len(keys) and not any(isinstance(t, nodes.Variable) for t in atom.terms):
            raise _unknown_fact(atom, own, constants)
        found.setdefault(atom.relation, []).append(keys)
    parts = {name: distinct_rows(torch.cat(keys)) for name, keys in found.items()}
    return {name: keys for name, keys in parts.items() if len(keys)}


def _matches(atom: nodes.Atom, table: Table, constants: Constants) -> Tensor:
    keys = table.index.keys
    holds = torch.ones(len(keys), dtype=torch.bool)
    first: dict[str, int] = {}
    for p, term in enumerate(atom.terms):
        if isinstance(term, nodes.Variable):
            if term.name in first:
                holds &= keys[:, p] == keys[:, first[term.name]]
            first.setdefault(term.name, p)
        elif constants.knows(term):
            holds &= keys[:, p] == constants.code(term)
        else:
            holds[:] = False
    return keys[holds]


def _unknown_relation(atom: nodes.Atom, arities: Mapping[str, int]) -> UnknownFact:
    return UnknownFact(
        f"the program has no relation `{atom.relation}`",
        atom.place or caller(),
        suggest(atom.relation, list(arities), f"its relations are {', '.join(arities)}"),
    )


def _unknown_fact(atom: nodes.Atom, own: Mapping[str, Table], constants: Constants) -> UnknownFact:
    place, table = atom.place or caller(), own.get(atom.relation)
    plain = nodes.Atom(atom.relation, atom.terms)
    if table is not None and all(constants.knows(t) for t in atom.terms):  # type: ignore[arg-type]
        key = constants.keys([atom.terms], len(atom.terms))  # type: ignore[list-item]
        if int(rows_of(table.index, key)[0]) >= 0:
            step = f"give it another value: `updating.add([{plain!r}[...]])`"
            return UnknownFact(
                f"`{plain!r}` is a fact of the program, not of the data", place, step
            )
    step = (
        f"remove a fact that was added, or all that match: `R.{atom.relation}(...)` with variables"
    )
    return UnknownFact(f"`{plain!r}` is not among the facts", place, step)
