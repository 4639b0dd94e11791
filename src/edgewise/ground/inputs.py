"""What a model is given: dense tensors, keys, rows, ragged batches, facts, graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller
from edgewise.language import nodes
from edgewise.weights import exact


class BadInput(EdgewiseError):
    """An input is a float tensor, an integer tensor of keys, `rows(...)`, `ragged(...)`, facts."""

    code = "bad-input"
    example = 'Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a="x")'
    instead = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a=torch.ones(3))"


@dataclass(frozen=True, eq=False)
class rows:
    """A relation as explicit rows: keys (arity, rows) of integers, and a value for each.

    >>> rows(torch.tensor([[0, 1], [1, 2]]), torch.ones(2)).keys.shape
    torch.Size([2, 2])
    """

    keys: Tensor
    values: Tensor | None = None

    def __post_init__(self) -> None:
        keys = _tensor(self.keys, "keys")
        if keys.dtype not in INTEGERS or keys.ndim not in (1, 2):
            raise BadInput(
                f"keys are an integer tensor (arity, rows), got {keys.dtype} {tuple(keys.shape)}",
                caller(),
                "write `rows(keys, values)` with one row of keys for each term"
                if keys.dtype != torch.bool
                else "list the pairs of a mask: `mask.nonzero().T`",
            )
        keys = (keys if keys.ndim == 2 else keys.unsqueeze(0)).long().resolve_neg()
        object.__setattr__(self, "keys", keys)
        if self.values is not None:
            values = _tensor(self.values, "values")
            object.__setattr__(self, "values", values)
            if not 1 <= values.ndim <= 3 or values.shape[0] != self.keys.shape[1]:
                raise BadInput(
                    f"{self.keys.shape[1]} keys, but values of shape {tuple(values.shape)}",
                    caller(),
                    "give one value for each key: `values` is (rows, value...)",
                )
            if values.is_complex():
                raise BadInput("values are complex numbers", caller(), "give real ones")


@dataclass(frozen=True, eq=False)
class ragged:
    """A batch of samples of different sizes: one input for each sample."""

    samples: Sequence[Any]

    def __post_init__(self) -> None:
        if isinstance(self.samples, str | bytes | dict) or not isinstance(self.samples, Iterable):
            raise BadInput(
                f"`ragged` takes a list of samples, got a {type(self.samples).__name__}",
                caller(),
                "write `ragged([first, second])`",
            )
        object.__setattr__(self, "samples", tuple(self.samples))


@dataclass(frozen=True, eq=False)
class numbers:
    """Integers as values on dense axes, such as tokens: ([batch,] keys...).

    An integer tensor alone is keys. Numbers stay integers in every precision, for `F.lookup`.

    >>> numbers([[101, 7592, 102]]).values.shape
    torch.Size([1, 3])
    """

    values: Tensor

    def __post_init__(self) -> None:
        values = _tensor(self.values, "values")
        if values.dtype not in INTEGERS:
            raise BadInput(
                f"`numbers` takes integers, got {values.dtype}",
                caller(),
                "give a float tensor as it is: `model(x=tensor)`",
            )
        object.__setattr__(self, "values", values.long())

    def on(self, name: str, arity: int) -> Tensor:
        """The numbers as scalars: (keys..., 1) or (batch, keys..., 1)."""
        if self.values.ndim not in (arity, arity + 1):
            raise BadInput(
                f"`{name}` has {arity} keys, the numbers have {self.values.ndim} axes "
                f"{tuple(self.values.shape)}",
                caller(),
                "give one number for each key: (keys...) or (batch, keys...)",
            )
        return self.values.unsqueeze(-1)


Given = Tensor | rows | ragged


def _tensor(item: Any, what: str) -> Tensor:
    try:
        found = item if isinstance(item, Tensor) else torch.as_tensor(item).clone()
        _refuse_layout(found, f"the {what}")
        return found
    except (TypeError, ValueError, RuntimeError):
        raise BadInput(
            f"the {what} are not numbers",
            caller(),
            "give a tensor, an array or lists of numbers; strings go into facts",
        ) from None


def _refuse_layout(tensor: Tensor, what: str) -> None:
    if tensor.is_nested:
        raise BadInput(
            f"{what}: a nested tensor", caller(), "give its samples: `ragged(tensor.unbind())`"
        )
    if tensor.layout != torch.strided:
        raise BadInput(
            f"{what}: a tensor of layout {tensor.layout}",
            caller(),
            "write `x.to_dense()`, or `rows(x.coalesce().indices(), x.coalesce().values())`",
        )


INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def read(name: str, item: Any, arity: int) -> Given:
    """An input as given: a tensor of values, rows, or a batch of those."""
    if isinstance(item, numbers):
        return item.on(name, arity)
    if isinstance(item, ragged):
        return ragged([_sample(name, sample, arity) for sample in item.samples])
    if isinstance(item, rows):
        return item
    if hasattr(item, "__array__") and hasattr(item, "dtype"):
        item = _array(name, item)
    if isinstance(item, Tensor):
        _refuse_layout(item, f"`{name}`")
        if item.is_complex():
            raise BadInput(f"`{name}` has complex numbers", caller(), "give real ones")
        return item if item.is_floating_point() else rows(item)
    if hasattr(item, "edges") and hasattr(item, "nodes"):
        return _networkx(name, item)
    raise BadInput(
        f"`{name}` was given a {type(item).__name__}",
        caller(),
        "give a float tensor (dense), an integer tensor (keys), `rows(...)`, `ragged([...])` or "
        "a networkx graph",
    )


def _sample(name: str, item: Any, arity: int) -> rows | Tensor:
    if isinstance(item, numbers):
        raise BadInput(
            f"a sample of `{name}` is `numbers`",
            caller(),
            "pad the samples to one length, `numbers(padded)`, and give the padding as a mask",
        )
    found = read(name, item, arity)
    if isinstance(found, ragged):
        raise BadInput(
            f"a sample of `{name}` is itself a batch", caller(), "one batch holds plain samples"
        )
    return found


def _array(name: str, item: Any) -> Tensor:
    try:
        # writes into an array could not be seen: its numbers of now are taken
        return item if isinstance(item, Tensor) else torch.as_tensor(item).clone()
    except (TypeError, ValueError):
        raise BadInput(
            f"`{name}` is an array of {item.dtype}", caller(), "give numbers: floats or integers"
        ) from None


def _whole(node: Any) -> int | None:
    """A node that is a whole number, also one of numpy's; True and False are none."""
    if isinstance(node, bool) or not hasattr(node, "__index__") or hasattr(node, "__len__"):
        return None
    return int(node)


def _networkx(name: str, graph: Any) -> rows:
    ends = [(_whole(a), _whole(b)) for a, b in graph.edges()]
    pairs = [(a, b) for a, b in ends if a is not None and b is not None]
    if len(pairs) != graph.number_of_edges():
        raise BadInput(
            f"the nodes of the graph for `{name}` are not integers",
            caller(),
            "relabel them: `networkx.convert_node_labels_to_integers(graph)`",
        )
    if not graph.is_directed():
        pairs = sorted({(a, b) for a, b in pairs} | {(b, a) for a, b in pairs})
    return rows(torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T)


def fact_rows(
    atoms: Iterable[nodes.Atom], dtype: torch.dtype
) -> dict[str, tuple[list[tuple[nodes.Constant, ...]], list[Any]]]:
    """Facts gathered by relation: keys and values."""
    found: dict[str, tuple[list[Any], list[Any]]] = {}
    one = torch.ones((), dtype=dtype)
    for atom in atoms:
        keys, values = found.setdefault(atom.relation, ([], []))
        keys.append(atom.terms)
        values.append(one if atom.weight is None else _value(atom.weight, dtype))
    return found


def held_tensors(atoms: Iterable[nodes.Atom]) -> list[Tensor]:
    """The tensors that are values of facts."""
    values = (atom.weight.value for atom in atoms if atom.weight is not None)
    things = (value.thing for value in values if isinstance(value, nodes.Opaque))
    return [thing for thing in things if isinstance(thing, Tensor)]


def kept(item: Given) -> Given:
    """An input that is kept: its keys are joined once, so that later edits must not reach them."""
    match item:
        case rows(keys=keys, values=values):
            return rows(keys.clone(), values)
        case ragged(samples=samples):
            return ragged([kept(sample) for sample in samples])
    return item


def _value(weight: nodes.Weight, dtype: torch.dtype) -> Tensor:
    value = weight.value
    thing = value.thing if isinstance(value, nodes.Opaque) else value
    return exact(thing, dtype)
