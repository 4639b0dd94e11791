"""What a source means: which table is which relation, which columns are keys, values and labels.

    customer = table("customers", keys=["id"], values=["age", one_hot("country")], label="churned")
    bought   = table("orders", keys={"customer_id": "customer", "product_id": "product"})

A key has a *type*, such as `customer`: columns of one type hold the same names, which are numbered
from 0 in sorted order. A table with one key defines a type, its own name unless it says another:
its relation is dense, a value for each number. The type `int` is a number that stands for itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgewise.data import columns
from edgewise.data.errors import BadSchema
from edgewise.errors import Place, caller, iterates, named, safe_repr

DUPLICATES = ("refuse", "sum", "mean", "min", "max", "count")
DANGLING = ("refuse", "drop")


@dataclass(frozen=True)
class ColumnCondition:
    """A condition on one column of a row: `column("age") >= 18`."""

    column: str
    operator: str
    value: Any


@dataclass(frozen=True)
class column:
    """A column in a condition; several conditions of a table hold together.

    >>> column("age") >= 18
    ColumnCondition(column='age', operator='>=', value=18)
    """

    name: str

    def __lt__(self, value: Any) -> ColumnCondition:
        return ColumnCondition(self.name, "<", value)

    def __le__(self, value: Any) -> ColumnCondition:
        return ColumnCondition(self.name, "<=", value)

    def __gt__(self, value: Any) -> ColumnCondition:
        return ColumnCondition(self.name, ">", value)

    def __ge__(self, value: Any) -> ColumnCondition:
        return ColumnCondition(self.name, ">=", value)

    def __eq__(self, value: object) -> Any:
        return ColumnCondition(self.name, "=", value)

    def __ne__(self, value: object) -> Any:
        return ColumnCondition(self.name, "<>", value)

    def __hash__(self) -> int:
        return hash(self.name)

    def one_of(self, *values: Any) -> ColumnCondition:
        return ColumnCondition(self.name, "IN", values)


@dataclass(frozen=True)
class one_hot:
    """A column of names or integers as a vector: 1 at the place of its category, else 0.

    The categories are those of the column, sorted, unless they are listed.

    >>> import pandas
    >>> from edgewise import data
    >>> people = pandas.DataFrame({"name": ["ann", "bob"], "town": ["Oslo", "Rome"]})
    >>> schema = data.Schema(person=data.table("people", ["name"], [one_hot("town")]))
    >>> data.read({"people": people}, schema).inputs["person"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    name: str
    categories: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        if self.categories is None:
            return
        if isinstance(self.categories, str) or not iterates(self.categories):
            raise BadSchema(
                f"categories are {safe_repr(self.categories)}", caller(), 'list them: `["a", "b"]`'
            )
        for category in self.categories:
            if not isinstance(category, int | str):
                raise BadSchema(
                    f"a category is {safe_repr(category)}", caller(), "give integers or strings"
                )
        object.__setattr__(self, "categories", tuple(self.categories))


@dataclass(frozen=True)
class days:
    """A column of dates or times, also as ISO texts, as a number: days after `since`.

    Times with a zone count in UTC.

    >>> from edgewise import data
    >>> orders = {"id": [0, 1], "at": ["2026-03-02", "2026-03-03T12:00"]}
    >>> schema = data.Schema(order=data.table("orders", ["id"], [days("at", since="2026-03-01")]))
    >>> data.read({"orders": orders}, schema).inputs["order"].tolist()
    [1.0, 2.5]
    """

    name: str
    since: str = "1970-01-01"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise BadSchema(f"a column is {safe_repr(self.name)}", caller(), 'write `days("at")`')
        if not isinstance(self.since, str) or columns.as_date(self.since) is None:
            raise BadSchema(
                f"`since={safe_repr(self.since)}` is not a date", caller(), 'write "2026-01-31"'
            )


@dataclass(frozen=True)
class standard:
    """A column of numbers, or `days`, less its mean and divided by its standard deviation.

    Mean and deviation are those of the rows that have a value, unless they are given; 0.0 for a
    null is the mean. `Dataset.schema` has those that were found, for rows that come later.

    >>> from edgewise import data
    >>> people = {"name": ["ann", "bob"], "age": [20, 40]}
    >>> schema = data.Schema(person=data.table("people", ["name"], [standard("age")]))
    >>> data.read({"people": people}, schema).inputs["person"].tolist()
    [-1.0, 1.0]
    """

    of: str | days
    mean: float | tuple[float, ...] | None = None
    deviation: float | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.of, str | days):
            raise BadSchema(
                f"a column is {safe_repr(self.of)}",
                caller(),
                'write `standard("age")`, or `standard(days("at"))`',
            )
        for name in ("mean", "deviation"):
            found = getattr(self, name)
            if isinstance(found, Sequence) and not isinstance(found, str | bytes):
                object.__setattr__(self, name, tuple(found))
        if self.mean is None and self.deviation is None:
            return
        mean, deviation = _finite(self.mean), _finite(self.deviation)
        fit = mean is not None and deviation is not None and len(mean) == len(deviation)
        if not fit or min(deviation or (1.0,)) <= 0:
            raise BadSchema(
                f"the mean is {safe_repr(self.mean)}, the deviation {safe_repr(self.deviation)}",
                caller(),
                'give both, finite, and a positive deviation: `standard("age", 41.5, 12.0)`',
            )

    @property
    def name(self) -> str:
        return self.of if isinstance(self.of, str) else self.of.name


def _finite(found: object) -> tuple[float, ...] | None:
    """A finite number, or a tuple of them; None if it is neither."""
    listed = found if isinstance(found, tuple) else (found,)
    fit = all(isinstance(x, int | float) and math.isfinite(x) for x in listed)
    return listed if fit else None


ValueColumn = str | one_hot | days | standard


@dataclass(frozen=True, eq=False)
class table:
    """One relation: the rows of a table, or those that `where` holds for.

    - keys: columns and their types; a list of one column, whose type is the relation's name
    - values: columns of numbers or of lists of numbers, `one_hot`, `days` of dates, `standard`;
      one vector of all of them
    - label: a column that is not an input; of numbers, or of names of classes
    - classes: the names of a label's classes in order; those of the column, sorted, if None
    - nulls: "refuse", "drop" the row, or a number for each column
    - duplicates: rows with the same keys: "refuse", "sum", "mean", "min", "max", "count"; without
      values they are one atom, unless they are counted
    - dangling: keys that the table of their type does not hold: "refuse", "drop" the row

    >>> import pandas
    >>> from edgewise import data
    >>> orders = pandas.DataFrame(
    ...     {"who": ["ann", "bob"], "what": ["tea", "ink"], "paid": [3.0, 5.0]}
    ... )
    >>> bought = table("orders", {"who": "person", "what": "product"}, ["paid"])
    >>> found = data.read({"orders": orders}, data.Schema(bought=bought))
    >>> found.decode("person", [0, 1]), found.number("product", "tea")
    (['ann', 'bob'], 1)
    >>> bought.columns(), bought.types("bought")
    (['who', 'what', 'paid'], {'who': 'person', 'what': 'product'})
    """

    name: str
    keys: Mapping[str, str | type[int]] | Sequence[str]
    values: Sequence[ValueColumn] = ()
    label: str | None = None
    where: Sequence[ColumnCondition] | ColumnCondition = ()
    nulls: str | Mapping[str, float] = "refuse"
    duplicates: str = "refuse"
    dangling: str = "refuse"
    classes: Sequence[int | str] | None = None
    place: Place | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", self.place or caller())
        self._check_names()
        self._check_keys()
        if isinstance(self.values, ValueColumn):
            object.__setattr__(self, "values", [self.values])
        for name in ("values", "where"):
            item = getattr(self, name)
            if not isinstance(item, ColumnCondition) and not iterates(item):
                self._refuse(f"`{name}={safe_repr(item)}`", f"leave `{name}` out, or give a list")
        conditions = [self.where] if isinstance(self.where, ColumnCondition) else list(self.where)
        object.__setattr__(self, "where", tuple(conditions))
        for condition in conditions:
            if not isinstance(condition, ColumnCondition):
                self._refuse(
                    f"a condition is {safe_repr(condition)}", 'write `column("age") >= 18`'
                )
        for item in self.values:
            if not isinstance(item, ValueColumn):
                self._refuse(
                    f"a value is {safe_repr(item)}", 'name a column, or write `one_hot("country")`'
                )
        self._check_choices()

    def _check_names(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            self._refuse("its name is not a string", 'write `table("people", ...)`')
        if self.label is not None and not isinstance(self.label, str):
            self._refuse(f"the label is {safe_repr(self.label)}", "name one column")
        if self.classes is not None:
            listed = iterates(self.classes) and not isinstance(self.classes, str | bytes)
            if not listed or not all(isinstance(name, str) for name in self.classes):
                self._refuse(
                    f"classes are {safe_repr(self.classes)}", 'list them: `classes=["no", "yes"]`'
                )
            if self.label is None:
                self._refuse("classes without a label", "name the column: `label=`")
            object.__setattr__(self, "classes", tuple(self.classes))

    def _check_keys(self) -> None:
        if isinstance(self.keys, str | bytes) or not isinstance(self.keys, Sequence | Mapping):
            one = self.keys if isinstance(self.keys, str) else "id"
            self._refuse(f"keys are {safe_repr(self.keys)}", f'write `keys=["{one}"]`')
        if not self.keys:
            self._refuse("no keys", 'name the columns that identify a row: `keys=["id"]`')
        if isinstance(self.keys, Mapping):
            for name, kind in self.keys.items():
                is_type = (isinstance(kind, str) and kind != "int") or kind is int
                if not isinstance(name, str) or not is_type:
                    self._refuse(
                        f"the type of the key `{named(name)}` is {safe_repr(kind)}",
                        "a type is a name, or Python's `int`, without quotes, for a number that "
                        "stands for itself",
                    )
        elif len(self.keys) > 1:
            pairs = ", ".join(f'"{named(name)}": "..."' for name in self.keys)
            self._refuse(
                f"{len(self.keys)} keys without types", f"say what each refers to: `{{{pairs}}}`"
            )
        elif not isinstance(self.keys[0], str):
            self._refuse(f"a key is {safe_repr(self.keys[0])}", 'name a column: `keys=["id"]`')

    def _check_choices(self) -> None:
        for name, choices in (("duplicates", DUPLICATES), ("dangling", DANGLING)):
            if getattr(self, name) not in choices:
                self._refuse(
                    f"`{name}={safe_repr(getattr(self, name))}`",
                    f"choose one of {', '.join(map(repr, choices))}",
                )
        if not isinstance(self.nulls, Mapping) and self.nulls not in ("refuse", "drop"):
            self._refuse(
                f"`nulls={safe_repr(self.nulls)}`",
                'write "refuse", "drop", or a number for each column: `{"age": 0.0}`',
            )
        if isinstance(self.nulls, Mapping):
            unknown = [name for name in self.nulls if name not in self.value_columns]
            if unknown:
                self._refuse(
                    f"`nulls` names `{named(unknown[0])}`, which is not a value",
                    "only values can be replaced; rows without a key are dropped or refused",
                )
            for name, number in self.nulls.items():
                if not isinstance(number, int | float) or not math.isfinite(number):
                    self._refuse(
                        f"`nulls` has {safe_repr(number)} for `{name}`", "give a finite number"
                    )

    def _refuse(self, what: str, help: str) -> None:
        raise BadSchema(f"table `{named(self.name)}`: {what}", self.place, help)

    @property
    def value_columns(self) -> list[str]:
        return [item if isinstance(item, str) else item.name for item in self.values]

    def types(self, relation: str) -> dict[str, str | type[int]]:
        """The type of each key."""
        if isinstance(self.keys, Mapping):
            return dict(self.keys)
        return {self.keys[0]: relation}

    def columns(self) -> list[str]:
        """Every column that is read, once."""
        conditions = [condition.column for condition in self.conditions]
        label = [] if self.label is None else [self.label]
        return list(dict.fromkeys([*self.keys, *self.value_columns, *label, *conditions]))

    @property
    def conditions(self) -> tuple[ColumnCondition, ...]:
        assert isinstance(self.where, tuple)
        return self.where


class Schema(Mapping[str, table]):
    """Relation → table.

    >>> Schema(person=table("people", keys=["id"], values=["age"]))["person"].name
    'people'
    """

    def __init__(self, **relations: table) -> None:
        if not relations:
            raise BadSchema(
                "a schema without relations",
                caller(),
                'write `Schema(person=table("people", ...))`',
            )
        for name, item in relations.items():
            if not isinstance(item, table):
                raise BadSchema(
                    f"`{name}` is {safe_repr(item)}",
                    caller(),
                    f'write `{name}=table("...", keys=["id"])`',
                )
        self.relations = relations

    def __getitem__(self, name: str) -> table:
        return self.relations[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.relations)

    def __len__(self) -> int:
        return len(self.relations)

    def __repr__(self) -> str:
        return f"Schema({', '.join(f'{name}={item!r}' for name, item in self.items())})"

    def definitions(self) -> dict[str, str]:
        """Type → the relation that defines it: the first with that one key.

        >>> Schema(person=table("people", keys=["id"])).definitions()
        {'person': 'person'}
        """
        found: dict[str, str] = {}
        for relation, item in self.items():
            types = list(item.types(relation).values())
            if len(types) == 1 and isinstance(types[0], str):
                found.setdefault(types[0], relation)
        return found
