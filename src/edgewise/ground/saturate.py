"""Which atoms hold where relations need one another: derive until nothing is new."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from edgewise.checks.evaluation import ROUNDS, endless
from edgewise.ground.body import Body
from edgewise.ground.bounded import reached
from edgewise.ground.index import Index, Keys, distinct_rows, index_of, pack
from edgewise.ground.rules import Grounder


def extend(grounder: Grounder, relation: str, parts: Iterable[Index]) -> None:
    """Add keys to a relation."""
    old = grounder.relations.get(relation)
    found = [*([old] if old is not None else []), *parts]
    if len(found) == 1 or all(index == found[0] for index in found):
        grounder.relations[relation] = found[0]
        return
    table = torch.cat([_table(index) for index in found])
    grounder.relations[relation] = index_of(distinct_rows(table))


def _table(index: Index) -> Tensor:
    columns = [index.column(p) for p in range(index.arity)]
    return torch.stack(columns, 1) if columns else torch.zeros(index.rows, 0, dtype=torch.int64)


def close(grounder: Grounder, bodies: Sequence[Body], part: set[str]) -> None:
    """Derive until nothing is new; each round joins only what the last one found."""
    found = reached(grounder, bodies, part)
    if found is not None:
        grounder.relations.update(found)
        return
    new: dict[str, Tensor] = {}
    for body in bodies:
        _derive(grounder, body, None, None, new)
    _accept(grounder, new)
    for _ in range(ROUNDS):
        if not new:
            return
        last, new = {name: index_of(keys) for name, keys in new.items()}, {}
        for body in bodies:
            for at, atom in body.positive.items():
                if atom.relation in part and atom.relation in last:
                    _derive(grounder, body, at, last[atom.relation], new)
        _accept(grounder, new)
    raise endless(bodies[0].rule)


def _derive(
    grounder: Grounder, body: Body, at: int | None, delta: Index | None, new: dict[str, Tensor]
) -> None:
    """Add the heads of one rule that the database does not have to `new`."""
    bindings = grounder.bindings(body, at, delta)
    head = body.rule.head
    columns = [grounder.column(t, bindings) for t in head.terms]
    keys = torch.stack(columns, 1) if columns else torch.zeros(bindings.count, 0, dtype=torch.int64)
    keys = distinct_rows(keys)
    have = grounder.relations.get(head.relation)
    if have is not None and have.rows and len(keys):
        keys = keys[~_known(have, keys)]
    if len(keys):
        before = new.get(head.relation)
        whole = keys if before is None else torch.cat([before, keys])
        new[head.relation] = distinct_rows(whole)


def _known(index: Index, keys: Tensor) -> Tensor:
    if not keys.shape[1]:
        return torch.ones(len(keys), dtype=torch.bool)
    have, want = pack([index.column(p) for p in range(index.arity)], list(keys.unbind(1)))
    return torch.isin(want, have)


def _accept(grounder: Grounder, new: dict[str, Tensor]) -> None:
    for relation, keys in new.items():
        extend(grounder, relation, [Keys(keys)])
