"""A source and a schema → a dataset: everything is read and checked, or nothing is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from edgewise.data import columns
from edgewise.data.column_values import bad_column, values_of
from edgewise.data.dataset import Dataset, Labels, as_numbers
from edgewise.data.errors import (
    BadColumn,
    BadSchema,
    DanglingReference,
    DuplicateRows,
    MissingValue,
    UnknownColumn,
    UnknownTable,
)
from edgewise.data.schema import Schema, one_hot, table
from edgewise.data.sources import open_source
from edgewise.data.sources.table_source import TableSource
from edgewise.data.sql import select
from edgewise.errors import EdgewiseError, caller, counted, raise_all, safe_repr, suggest
from edgewise.inputs.kinds import Input, rows
from edgewise.weights import PRECISIONS

LARGEST = 2**62  # of a number that stands for itself
MERGE = {"sum": np.add, "mean": np.add, "min": np.minimum, "max": np.maximum}


def read(source: object, schema: Schema, *, dtype: torch.dtype | None = None) -> Dataset:
    """Read the relations of a schema.

    `source` is a database (a path of DuckDB or SQLite, `postgresql://...`, a connection), a file or
    folder of CSV, Parquet, Arrow or JSON lines, or a mapping from names to frames of pandas,
    polars or Arrow, or to columns. `dtype` is that of values, torch's default if None.

    >>> people = {"id": ["bob", "ann"], "age": [27, 31]}
    >>> knows = {"a": ["ann"], "b": ["bob"]}
    >>> found = read(
    ...     {"people": people, "knows": knows},
    ...     Schema(
    ...         person=table("people", keys=["id"], values=["age"]),
    ...         knows=table("knows", keys={"a": "person", "b": "person"}),
    ...     ),
    ... )
    >>> found.inputs["person"], found.inputs["knows"].keys.T.tolist(), found.names["person"]
    (tensor([31., 27.]), [[0, 1]], ('ann', 'bob'))
    """
    if not isinstance(schema, Schema):
        raise BadSchema(
            f"a schema is expected, got {type(schema).__name__}",
            caller(),
            "write `data.read(frames, schema)`: the source comes first"
            if isinstance(source, Schema)
            else "write `data.Schema(person=data.table(...))`",
        )
    if dtype is not None and dtype not in PRECISIONS:
        help = "give a floating-point one: `dtype=torch.float64`"
        raise BadSchema(f"values of {safe_repr(dtype)}", caller(), help)
    with open_source(source) as tables:
        fetched = _fetch(tables, schema, dtype or torch.get_default_dtype())
    return _dataset(schema, fetched, dtype or torch.get_default_dtype())


@dataclass(eq=False)
class Fetched:
    """The rows of one relation: `names` of each key column, values (rows, size), labels."""

    relation: str
    spec: table
    names: dict[str, np.ndarray]
    values: np.ndarray | None
    labels: np.ndarray | None

    def keep(self, mask: np.ndarray) -> None:
        self.names = {name: column[mask] for name, column in self.names.items()}
        self.values = None if self.values is None else self.values[mask]
        self.labels = None if self.labels is None else self.labels[mask]


def _fetch(source: TableSource, schema: Schema, dtype: torch.dtype) -> list[Fetched]:
    """All tables of the schema; all names that the source does not have are reported together."""
    there = source.tables()
    errors: list[EdgewiseError] = []
    for spec in schema.values():
        if spec.name not in there:
            what = f"{source.name} has no table `{spec.name}`"
            errors.append(
                UnknownTable(
                    what,
                    spec.place,
                    suggest(spec.name, list(there), "" if there else "it is empty"),
                )
            )
            continue
        known = source.columns(there[spec.name])
        errors += [
            UnknownColumn(
                f"`{spec.name}` has no column `{name}`",
                spec.place,
                suggest(name, known)
                if name != spec.label
                else f"rows to predict have a null there: `frame.assign({name}=None)`; without "
                "labels, leave out `label=`",
            )
            for name in spec.columns()
            if name not in known
        ]
    raise_all(errors)
    for spec in schema.values():
        for condition in spec.conditions:
            found = source.unlike(there[spec.name], condition)
            if found is not None:
                name = f"`{condition.column}` of `{spec.name}`, in a condition"
                help = "compare it with values of the kind that it holds"
                errors.append(BadColumn(f"{name}: {found}", spec.place, help))
    raise_all(errors)
    raw = {}
    for relation, spec in schema.items():
        names = spec.columns()
        answer = source.fetch(*select(there[spec.name], names, spec.conditions, source.mark))
        raw[relation] = dict(zip(names, answer, strict=True))
    read = [
        _columns(relation, spec, raw[relation], errors, dtype) for relation, spec in schema.items()
    ]
    raise_all(errors)
    return read


def _null(spec: table, name: str, gone: np.ndarray) -> MissingValue:
    what = f"`{name}` of `{spec.name}` is null in {int(gone.sum()):,} of {len(gone):,} rows"
    value = name in spec.value_columns
    help = 'drop those rows with `nulls="drop"`'
    return MissingValue(
        what, spec.place, f'{help}, or give a number: `nulls={{"{name}": 0.0}}`' if value else help
    )


def _columns(
    relation: str,
    spec: table,
    raw: Mapping[str, Any],
    errors: list[EdgewiseError],
    dtype: torch.dtype,
) -> Fetched:
    gone = {name: columns.missing(column) for name, column in raw.items()}
    count = len(next(iter(gone.values())))
    drop = np.zeros(count, dtype=bool)
    for name in dict.fromkeys([*spec.keys, *spec.value_columns]):
        replaced = isinstance(spec.nulls, Mapping) and name in spec.nulls
        if replaced or not gone[name].any():
            continue
        if spec.nulls == "drop":
            drop |= gone[name]
        else:
            errors.append(_null(spec, name, gone[name]))
    keys: dict[str, np.ndarray] = {}
    for name in spec.keys:
        found = columns.names(raw[name], gone[name])
        if isinstance(found, columns.Unfit):
            errors.append(
                bad_column(spec, name, found, "keys are integers or strings, of one kind")
            )
        else:
            keys[name] = np.empty(count, dtype=object)
            keys[name][:] = found
    read = [values_of(spec, item, raw, gone, errors, dtype) for item in spec.values]
    values = [found for found, _ in read]
    spec = replace(spec, values=[item for _, item in read])
    labels = None
    if spec.label is not None:
        labels = np.empty(count, dtype=object)
        labels[:] = [
            None if lost else value
            for value, lost in zip(columns.listed(raw[spec.label]), gone[spec.label], strict=True)
        ]
    fitting = [v[:, None] if v.ndim == 1 else v for v in values if v is not None]
    joined = np.concatenate(fitting, 1) if fitting else None
    fetched = Fetched(relation, spec, keys, joined, labels)
    if drop.any() and len(keys) == len(spec.keys):
        fetched.keep(~drop)
    return fetched


def _dataset(schema: Schema, fetched: list[Fetched], dtype: torch.dtype) -> Dataset:
    numbers, errors = _types(schema, fetched)
    raise_all(errors)
    inputs: dict[str, Input] = {}
    labels: dict[str, Labels] = {}
    defined = schema.definitions()
    for one in fetched:
        keys = _keys(one, numbers, errors)
        if keys is None:
            continue
        try:
            merged, values = combined(keys, one.values, one.spec.duplicates)
        except ValueError as problem:
            twice = {name: column[int(str(problem))] for name, column in one.names.items()}
            what = f"`{one.spec.name}` has several rows for {safe_repr(twice)}"
            help = 'combine them, such as by `duplicates="sum"`'
            errors.append(DuplicateRows(what, one.spec.place, help))
            continue
        if one.labels is not None:
            labels[one.relation] = found = _labels(one, keys, errors)
            one.spec = replace(one.spec, classes=found.classes)
        types = list(one.spec.types(one.relation).values())
        dense = len(types) == 1 and defined.get(str(types[0])) == one.relation
        inputs[one.relation] = _input(merged, values, one.spec, dense, dtype)
    raise_all(errors)
    names = {kind: tuple(all) for kind, all in numbers.items()}
    known = Schema(**{one.relation: one.spec for one in fetched})
    return Dataset(inputs, names, labels, schema=known)


def _types(
    schema: Schema, fetched: list[Fetched]
) -> tuple[dict[str, dict[Any, int]], list[EdgewiseError]]:
    """The numbers of the names of each type: those of its table, or of all its columns."""
    errors: list[EdgewiseError] = []
    defined = schema.definitions()
    found: dict[str, set[Any]] = {}
    kinds: dict[str, tuple[type, str]] = {}
    for one in fetched:
        for name, kind in one.spec.types(one.relation).items():
            column = one.names[name]
            if isinstance(kind, str) and len(column):
                here = type(column[0])
                first, where = kinds.setdefault(kind, (here, f"`{name}` of `{one.spec.name}`"))
                if here is not first:
                    what = (
                        f"`{name}` of `{one.spec.name}` has {here.__name__} keys of type `{kind}`, "
                        f"{where} has {first.__name__}"
                    )
                    errors.append(BadColumn(what, one.spec.place, "convert one of the columns"))
                    continue
            if isinstance(kind, str) and defined.get(kind, one.relation) == one.relation:
                found.setdefault(kind, set()).update(column.tolist())
    return ({} if errors else {kind: as_numbers(list(all)) for kind, all in found.items()}), errors


def _keys(
    one: Fetched, numbers: Mapping[str, Mapping[Any, int]], errors: list[EdgewiseError]
) -> np.ndarray | None:
    """The keys (arity, rows); rows that refer to nothing are dropped or refused."""
    count = len(next(iter(one.names.values())))
    keys = np.zeros((len(one.names), count), dtype=np.int64)
    for at, (name, kind) in enumerate(one.spec.types(one.relation).items()):
        column = one.names[name].tolist()
        if isinstance(kind, str):
            known = numbers[kind]
            keys[at] = [known.get(value, -1) for value in column]
        elif column and isinstance(column[0], str):
            unfit = columns.Unfit(1, f"{safe_repr(column[0])} is not an integer")
            errors.append(bad_column(one.spec, name, unfit, "give its type a name, not `int`"))
            return None
        else:
            far = next((i for i, value in enumerate(column) if abs(value) > LARGEST), None)
            if far is not None:
                unfit = columns.Unfit(far + 1, f"{column[far]} is too large")
                errors.append(bad_column(one.spec, name, unfit, "give its type a name, not `int`"))
                return None
            keys[at] = column
            continue
        lost = keys[at] < 0
        if lost.any() and one.spec.dangling == "refuse":
            example = column[int(lost.argmax())]
            what = (
                f"`{name}` of `{one.spec.name}` refers to {safe_repr(example)}, which "
                f"`{kind}` does not hold ({counted(int(lost.sum()), 'such row')})"
            )
            errors.append(
                DanglingReference(what, one.spec.place, 'drop such rows with `dangling="drop"`')
            )
            return None
    raw = [kind is int for kind in one.spec.types(one.relation).values()]
    lost = ((keys < 0) & ~np.array(raw)[:, None]).any(0)
    if lost.any():
        one.keep(~lost)
        keys = keys[:, ~lost]
    return keys


def _input(
    keys: np.ndarray, values: np.ndarray | None, spec: table, dense: bool, dtype: torch.dtype
) -> Input:
    """Dense, in the order of the numbers; or rows. A single number is a scalar."""
    index = torch.from_numpy(np.ascontiguousarray(keys))
    if values is None:
        return rows(index)
    found = torch.from_numpy(np.ascontiguousarray(values)).to(dtype)
    if found.shape[1] == 1 and (
        spec.duplicates == "count" or not isinstance(spec.values[0], one_hot)
    ):
        found = found[:, 0]
    return found if dense else rows(index, found)


def _labels(one: Fetched, keys: np.ndarray, errors: list[EdgewiseError]) -> Labels:
    """Labels of the rows that have one: numbers as they are, names as the numbers of classes."""
    assert one.labels is not None
    there = np.array([label is not None for label in one.labels], dtype=bool)
    order = np.lexsort(keys[::-1, there])
    index, present = keys[:, there][:, order], one.labels[there][order].tolist()
    classes, values = _label_values(one, present, errors)
    again = (index[:, 1:] == index[:, :-1]).all(0)
    if (again & (values[1:] != values[:-1])).any():
        what = f"`{one.spec.name}` has several labels for one key"
        errors.append(DuplicateRows(what, one.spec.place, "select one of them with `where=`"))
    first = np.append(True, ~again)[: len(values)]
    return Labels(torch.from_numpy(index[:, first]), torch.from_numpy(values[first]), classes)


def _label_values(
    one: Fetched, present: list[Any], errors: list[EdgewiseError]
) -> tuple[tuple[Any, ...] | None, np.ndarray]:
    kinds = {type(label) for label in present}
    if one.spec.classes is not None:
        classes = {name: at for at, name in enumerate(one.spec.classes)}
        other = next((label for label in present if label not in classes), None)
        if other is not None:
            what = f"`{one.spec.label}` of `{one.spec.name}`: {safe_repr(other)} is not a class"
            errors.append(BadColumn(what, one.spec.place, f"they are {list(classes)}"))
            return None, np.zeros(len(present))
        return tuple(classes), np.array([classes[label] for label in present], dtype=np.int64)
    if kinds <= {int, bool}:
        return None, np.array([int(label) for label in present], dtype=np.int64)
    if kinds == {str}:
        classes = as_numbers(present)
        return tuple(classes), np.array([classes[label] for label in present], dtype=np.int64)
    found = columns.numbers(present, columns.missing(present))
    if isinstance(found, columns.Unfit) or found.ndim > 1:
        unfit = found if isinstance(found, columns.Unfit) else columns.Unfit(1, "it is a list")
        help = "labels are numbers or names of classes"
        errors.append(bad_column(one.spec, str(one.spec.label), unfit, help))
        return None, np.zeros(len(present))
    return None, found


def combined(
    keys: np.ndarray, values: np.ndarray | None, duplicates: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Distinct keys (arity, rows) in order, and the values of each, combined.

    Values are sorted before they are added: a sum is the same to the bit from every source. A key
    that must not repeat raises `ValueError` with the number of its row.

    >>> combined(np.array([[1, 0, 1]]), np.array([[2.0], [5.0], [3.0]]), "sum")
    (array([[0, 1]]), array([[5.],
           [5.]]))
    """
    if not keys.shape[1]:
        none = np.zeros((0, 1)) if duplicates == "count" else values
        return keys, none
    minor = [] if values is None else list(values.T[::-1])
    order = np.lexsort([*minor, *keys[::-1]])
    keys = keys[:, order]
    new = np.ones(keys.shape[1], dtype=bool)
    new[1:] = (keys[:, 1:] != keys[:, :-1]).any(0)
    starts = new.nonzero()[0]
    counts = np.diff(np.append(starts, keys.shape[1]))
    if duplicates == "count":
        return keys[:, starts], counts[:, None].astype(np.float64)
    if values is None:
        return keys[:, starts], None
    values = values[order]
    if len(starts) == keys.shape[1]:
        return keys, values
    if duplicates == "refuse":
        raise ValueError(int(order[(~new).argmax()]))
    merged = MERGE[duplicates].reduceat(values, starts, axis=0)
    return keys[:, starts], merged / counts[:, None] if duplicates == "mean" else merged
