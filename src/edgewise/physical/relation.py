"""An output as explicit rows: keys, and a value for each."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any

from torch import Tensor

from edgewise.checks.evaluation import BadQuery, NotDerivable
from edgewise.errors import EdgewiseError, caller, counted, safe_repr
from edgewise.ground.index import STRINGS, Constants
from edgewise.ground.index import Keys as Keyed
from edgewise.language import nodes
from edgewise.notebook import html_table, short_value
from edgewise.physical.demand.wanted import Keys, Want, read_keys, rows_wanted

SHOWN = 4  # atoms in the text of a relation


class NotATensor(EdgewiseError, AttributeError):
    """An output whose keys come with the data is a list of rows: keys, and a value for each."""

    code = "not-a-tensor"
    example = """\
model = Program([R.h(V.I) <= R.x(V.I)]).compile(R.h)
model(x={"ann": 1.0, "bob": 2.0}).sum()"""
    instead = """\
model = Program([R.h(V.I) <= R.x(V.I)]).compile(R.h)
model(x={"ann": 1.0, "bob": 2.0}).data.sum()"""


class Relation(Mapping[nodes.Atom, Tensor]):
    """Explicit rows: `index` (arity, rows) of keys and `data` ([batch,] rows, value...).

    As a mapping it goes from atom to value, in key order; strings are shown as themselves.

    >>> from edgewise import Program, R, V
    >>> h = Program([R.h(V.I) <= R.x(V.I)]).compile(R.h)(x={"ann": 1.0, "bob": 2.0})
    >>> h, h[R.h("bob")], h.at(["bob", "ann"])
    (<h: 2 rows h('ann'), h('bob'); values (2,)>, tensor(2.), tensor([2., 1.]))
    """

    def __init__(
        self, name: str, index: Tensor, data: Tensor, constants: Constants, batched: bool
    ) -> None:
        self.name = name
        self._keys = index  # of the step, which must not be written into
        self.data = data
        self.constants = constants
        self.batched = batched

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Tensor, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise NotATensor(
            f"`{self.name}` is a list of {counted(len(self), 'row')} and has no `{name}`",
            caller(),
            f"its values are the tensor `.data`, its keys `.index`: `.data.{name}`; values in the "
            "order of your keys are `.at(keys)`",
        )

    @cached_property
    def index(self) -> Tensor:
        return self._keys.clone()

    def __getitem__(self, query: Any) -> Tensor:
        if not isinstance(query, nodes.Atom) or query.relation != self.name:
            raise BadQuery(
                f"`{safe_repr(query)}` is not an atom of `{self.name}`",
                caller(),
                f"ask `relation[R.{self.name}({', '.join('1' * len(self._keys))})]`",
            )
        row = self._rows.get(query.terms)  # type: ignore[arg-type]
        if row is None:
            raise NotDerivable(f"nothing derives `{query!r}`", caller(), "see `list(relation)`")
        return self.data[:, row] if self.batched else self.data[row]

    @cached_property
    def _rows(self) -> dict[tuple[nodes.Constant, ...], int]:
        return {terms: row for row, terms in enumerate(self._terms())}

    def _terms(self) -> Iterator[tuple[nodes.Constant, ...]]:
        keys = self._keys.T.tolist()
        if not self.constants.strings or not bool((self._keys >= STRINGS).any()):
            return map(tuple, keys)
        constant = self.constants.constant
        return (tuple([constant(code) for code in key]) for key in keys)

    def __iter__(self) -> Iterator[nodes.Atom]:
        return (nodes.Atom(self.name, terms) for terms in self._terms())

    def items(self) -> ItemsView[nodes.Atom, Tensor]:
        """Pairs of an atom and its value.

        >>> from edgewise import Program, R, V
        >>> h = Program([R.h(V.I) <= R.x(V.I)]).compile(R.h)(x={"ann": 1.0, "bob": 2.0})
        >>> for atom, value in h.items():
        ...     print(atom, value.item())
        R.h('ann') 1.0
        R.h('bob') 2.0
        """
        return _Items(self)

    def __len__(self) -> int:
        return self._keys.shape[1]

    def at(self, keys: Keys) -> Tensor:
        """The values of some keys, in their order: (keys, value...), in a batch (batch, keys, ...).

        `relation.at(["bob", "ann"])`, `relation.at([(0, 1), (2, 3)])`, `relation.at(tensor)`; so
        values stand beside labels in the order of the labels.

        >>> from edgewise import Program, R, V
        >>> h = Program([R.h(V.I) <= R.x(V.I)]).compile(R.h)(x={"ann": 1.0, "bob": 2.0})
        >>> h.at(["bob", "ann"]).tolist()
        [2.0, 1.0]
        """
        arity = len(self._keys)
        query = nodes.Atom(self.name, tuple(nodes.Variable(f"_{n}") for n in range(arity)))
        wanted = Want({0: read_keys(keys, query)}).coded(0, arity, self.name, self.constants, None)
        assert wanted is not None
        found, _ = rows_wanted(wanted, Keyed(self._keys.T.cpu()), self.name, self.constants, None)
        return self.data.index_select(1 if self.batched else 0, found.to(self.data.device))

    def __repr__(self) -> str:
        first = [str(atom).removeprefix("R.") for atom in islice(self, SHOWN)]
        shown = ", ".join([*first, *(["..."] if len(self) > SHOWN else [])])
        count = f"{len(self)} rows{' ' if shown else ''}{shown}"
        return f"<{self.name}: {count}; values {tuple(self.data.shape)}>"

    def _repr_html_(self) -> str:
        values = self.data.detach().transpose(0, 1) if self.batched else self.data.detach()
        rows = zip(map(repr, self), (short_value(row.tolist()) for row in values), strict=True)
        caption = f"{self.name}: {len(self)} rows, values {tuple(self.data.shape)}"
        return html_table(caption, ["atom", "value"], rows, len(self))


class _Items(ItemsView[nodes.Atom, Tensor]):
    """Atoms and values side by side: one pass, where a lookup for each atom would hash them all."""

    _mapping: Relation

    def __iter__(self) -> Iterator[tuple[nodes.Atom, Tensor]]:
        data = self._mapping.data
        return zip(self._mapping, data.unbind(1 if self._mapping.batched else 0), strict=True)
