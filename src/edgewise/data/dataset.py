"""What a source gives: inputs of a model, the names behind their numbers, and labels."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from edgewise.data.errors import UnknownName
from edgewise.data.schema import Schema
from edgewise.errors import caller, counted, safe_repr, suggest
from edgewise.inputs.kinds import Input, ragged
from edgewise.inputs.kinds import rows as keyed
from edgewise.notebook import html_table

Key = int | str


@dataclass(frozen=True, eq=False)
class Labels:
    """What rows are to be predicted: keys (arity, rows), a value each, and the names of classes.

    >>> import torch
    >>> Labels(torch.tensor([[0, 1]]), torch.tensor([1, 0]), ("no", "yes")).classes
    ('no', 'yes')
    """

    keys: Tensor
    values: Tensor
    classes: tuple[Key, ...] | None = None

    def __len__(self) -> int:
        return self.keys.shape[1]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs by relation, for `model.ground(**dataset.inputs)`.

    `schema` is that of tables, with the categories, means, deviations and classes that were found:
    rows that come later are read with it, so that their numbers mean the same.

    >>> import torch
    >>> found = Dataset({"age": torch.tensor([31.0, 27.0])}, {"person": ("ann", "bob")})
    >>> found
    Dataset(age: 2 dense; person: 2 names)
    >>> found.number("person", "bob"), found.decode("person", torch.tensor([1, 0]))
    (1, ['bob', 'ann'])
    """

    inputs: Mapping[str, Input]
    names: Mapping[str, Sequence[Key]] = field(default_factory=dict)
    labels: Mapping[str, Labels] = field(default_factory=dict)
    splits: Mapping[str, Tensor] = field(default_factory=dict)
    schema: Schema | None = None

    @cached_property
    def _numbers(self) -> dict[str, dict[Any, int]]:
        return {kind: {name: at for at, name in enumerate(all)} for kind, all in self.names.items()}

    def number(self, kind: str, name: Key) -> int:
        """The key that stands for a name."""
        numbers = self._of(kind, self._numbers)
        if not isinstance(name, Hashable) or name not in numbers:
            known = [str(other) for other in self.names[kind]]
            raise UnknownName(
                f"there is no `{kind}` named {safe_repr(name)}",
                caller(),
                suggest(str(name), known[:10_000], f'the names are `.names["{kind}"]`'),
            )
        return numbers[name]

    def decode(self, kind: str, numbers: Tensor | Iterable[int]) -> list[Key]:
        """The names behind keys."""
        names = self._of(kind, self.names)
        found = numbers.tolist() if isinstance(numbers, Tensor) else list(numbers)
        for number in found:
            if type(number) is not int or not 0 <= number < len(names):
                raise UnknownName(
                    f"{safe_repr(number)} is not the number of a `{kind}`",
                    caller(),
                    f"there are {counted(len(names), 'name')}, numbered from 0",
                )
        return [names[number] for number in found]

    def _of(self, kind: str, all: Mapping[str, Any]) -> Any:
        if kind not in all:
            raise UnknownName(
                f"there is no type `{kind}`", caller(), suggest(kind, list(self.names))
            )
        return all[kind]

    def __repr__(self) -> str:
        parts = [f"{name}: {_size(item)}" for name, item in self.inputs.items()]
        parts += [f"{kind}: {counted(len(names), 'name')}" for kind, names in self.names.items()]
        parts += [f"{counted(len(found), 'label')} of {on}" for on, found in self.labels.items()]
        return f"Dataset({'; '.join(parts)})"

    def _repr_html_(self) -> str:
        rows = [("input", name, _size(item)) for name, item in self.inputs.items()]
        rows += [("names", kind, f"{len(names):,}") for kind, names in self.names.items()]
        rows += [("labels", on, f"{len(found):,}") for on, found in self.labels.items()]
        rows += [("split", name, f"{len(found):,}") for name, found in self.splits.items()]
        return html_table("Dataset", ["", "name", "size"], rows, len(rows))


def _size(item: Input) -> str:
    if isinstance(item, ragged):
        return counted(len(item.samples), "sample")
    return f"{item.keys.shape[1]} rows" if isinstance(item, keyed) else f"{item.shape[0]} dense"


def as_numbers(names: Sequence[Any]) -> dict[Any, int]:
    """Names in sorted order, numbered from 0: the same whatever order a source has."""
    return {name: at for at, name in enumerate(sorted(set(names)))}
