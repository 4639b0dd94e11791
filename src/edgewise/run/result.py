"""What a model gives for a relation without dense axes: keys and values, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from torch import Tensor

from edgewise.errors import caller, said
from edgewise.ground.constants import Constants
from edgewise.language import nodes
from edgewise.reference.solution import BadQuery, NotDerivable


class Relation(Mapping[nodes.Atom, Tensor]):
    """Explicit rows: `index` (arity, rows) of keys and `data` ([batch,] rows, value...).

    As a mapping it goes from atom to value, in key order; strings are shown as themselves.
    """

    def __init__(
        self, name: str, index: Tensor, data: Tensor, constants: Constants, batched: bool
    ) -> None:
        self.name = name
        self._keys = index  # of the step, which must not be written into
        self.data = data
        self.constants = constants
        self.batched = batched

    @cached_property
    def index(self) -> Tensor:
        return self._keys.clone()

    def __getitem__(self, query: Any) -> Tensor:
        if not isinstance(query, nodes.Atom) or query.relation != self.name:
            raise BadQuery(
                f"`{said(query)}` is not an atom of `{self.name}`",
                caller(),
                f"ask `relation[R.{self.name}({', '.join('1' * len(self._keys))})]`",
            )
        for row, atom in enumerate(self):
            if atom.terms == query.terms:
                return self.data[:, row] if self.batched else self.data[row]
        raise NotDerivable(f"nothing derives `{query!r}`", caller(), "see `list(relation)`")

    def __iter__(self) -> Iterator[nodes.Atom]:
        for key in self._keys.T.tolist():
            yield nodes.Atom(self.name, tuple(self.constants.constant(c) for c in key))

    def __len__(self) -> int:
        return self._keys.shape[1]

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self)} rows, values {tuple(self.data.shape)}>"
