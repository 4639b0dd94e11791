"""The rows that a caller wants of the outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.checks.evaluation import NotDerivable
from edgewise.errors import EdgewiseError, caller, safe_repr, suggest
from edgewise.ground.index import STRINGS, Constants, Index, rows_of
from edgewise.language import nodes
from edgewise.plan.nodes import Plan

Key = nodes.Constant | tuple[nodes.Constant, ...] | nodes.Atom
Keys = Tensor | Iterable[Key]
WantLike = Keys | Mapping[str, Keys]


class BadWant(EdgewiseError):
    """Wanted rows are keys of an output: integers, strings or tuples of them."""

    code = "bad-want"
    example = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a=torch.ones(3), want=[0.5])"
    instead = "Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)(a=torch.ones(3), want=[1, 0])"


@dataclass(frozen=True, eq=False)
class Want:
    """The keys that are wanted of each output by its number, as columns or as tuples."""

    keys: dict[int, Tensor | tuple[tuple[nodes.Constant, ...], ...]]

    @property
    def mark(self) -> tuple[Any, ...]:
        """Equal for equal keys."""
        return tuple(
            (number, tuple(keys.shape), keys.numpy().tobytes())
            if isinstance(keys, Tensor)
            else (number, keys)
            for number, keys in self.keys.items()
        )

    def coded(
        self, number: int, arity: int, relation: str, constants: Constants, fill: float | None
    ) -> Tensor | None:
        """The keys (rows, arity) of an output; None where all rows are wanted.

        Strings that the data has not are one more, where absent rows are filled.
        """
        keys = self.keys.get(number)
        if keys is None:
            return None
        found = len(keys) if isinstance(keys, Tensor) else len(keys[0]) if keys else arity
        if found != arity:
            raise BadWant(
                f"a key of `{relation}` has {arity} terms, got {found}",
                caller(),
                "give a tensor (terms, rows), or a list of tuples; of ragged samples, the number "
                "of the sample comes first",
            )
        if isinstance(keys, Tensor):
            outside = (keys.abs() >= STRINGS).any(0).nonzero()[:, 0]
            if len(outside):  # codes of strings are there
                raise not_derivable(relation, keys[:, outside[0]].tolist())
            return keys.T.contiguous()
        absent = [key for key in keys if not all(map(constants.knows, key))]
        if absent and fill is None:
            raise not_derivable(relation, absent[0])
        known = (tuple(t if constants.knows(t) else 0 for t in key) for key in keys)
        codes = constants.keys(known, arity)
        for row, key in enumerate(keys) if absent else ():
            for place, term in enumerate(key):
                if not constants.knows(term):
                    codes[row, place] = STRINGS + len(constants.strings)
        return codes


def not_derivable(relation: str, key: Sequence[nodes.Constant]) -> NotDerivable:
    return NotDerivable(
        f"nothing derives `R.{relation}({', '.join(map(repr, key))})`, which is wanted",
        caller(),
        "leave it out, or give absent rows a value: `compile(..., fill=0.0)`",
    )


def read_want(plan: Plan, want: WantLike) -> Want:
    """What a caller wants, checked as far as no data is needed."""
    if not plan.names:
        return Want({0: read_keys(want, plan.outputs[0])})
    if not isinstance(want, Mapping):
        raise BadWant(
            f"the model has the outputs {', '.join(plan.names)}, and `want` is "
            f"{type(want).__name__}",
            caller(),
            f"give keys by name: `want={{{plan.names[0]!r}: [0, 1]}}`",
        )
    found = {}
    for name, keys in want.items():
        if name not in plan.names:
            raise BadWant(
                f"`{safe_repr(name)}` is not an output",
                caller(),
                suggest(name, plan.names),
            )
        number = plan.names.index(name)
        found[number] = read_keys(keys, plan.outputs[number])
    return Want(dict(sorted(found.items())))


def read_keys(keys: Any, output: nodes.Atom) -> Tensor | tuple[tuple[nodes.Constant, ...], ...]:
    """Keys of an output, checked: (terms, rows) of integers, or tuples."""
    if isinstance(keys, np.ndarray) and keys.dtype.kind in "UOT":
        keys = keys.tolist() if keys.ndim == 1 else keys.T.tolist()
    elif isinstance(keys, np.ndarray | range):
        keys = torch.from_numpy(np.asarray(keys))
    if isinstance(keys, Tensor):
        kind = keys.dtype
        if (
            kind.is_floating_point
            or kind.is_complex
            or kind == torch.bool
            or keys.ndim not in (1, 2)
        ):
            raise BadWant(
                f"`want` is {kind} of shape {tuple(keys.shape)}",
                caller(),
                "give integers: keys, or (terms, rows); of a mask, `mask.nonzero()[:, 0]`",
            )
        columns = keys.detach().to("cpu", torch.int64)
        return (columns.unsqueeze(0) if keys.ndim == 1 else columns).clone()
    if isinstance(keys, str | bytes | Mapping | Set) or not isinstance(keys, Iterable):
        raise _bad(keys)
    found = tuple(_key(key, output) for key in keys)
    plain = all(isinstance(term, int) and abs(term) < STRINGS for key in found for term in key)
    if found and plain and len({len(key) for key in found}) == 1:
        return torch.tensor(found).T.contiguous()
    return found


def _key(key: Any, output: nodes.Atom) -> tuple[nodes.Constant, ...]:
    if isinstance(key, nodes.Atom):
        if key.relation != output.relation or len(key.terms) != len(output.terms):
            raise _bad(key)
        key = [
            t for t, o in zip(key.terms, output.terms, strict=True) if isinstance(o, nodes.Variable)
        ]
    key = tuple(key) if isinstance(key, list | tuple) else (key,)
    key = tuple(int(t) if isinstance(t, np.integer) else t for t in key)
    if not all(isinstance(t, int | str) and not isinstance(t, bool) for t in key):
        raise _bad(key)
    return key


def _bad(key: Any) -> BadWant:
    return BadWant(
        f"`{safe_repr(key)}` is not a key",
        caller(),
        "give integers, strings or tuples of them: `want=[0, 3]`, `want=[(0, 1), (2, 3)]`",
    )


def rows_wanted(
    keys: Tensor, index: Index, relation: str, constants: Constants, fill: float | None
) -> tuple[Tensor, Tensor | None]:
    """The rows of wanted keys, and their places where some are absent and filled."""
    rows = rows_of(index, keys)
    missing = (rows < 0).nonzero()[:, 0]
    if not len(missing):
        return rows, None
    if fill is None:
        raise not_derivable(relation, [constants.constant(int(c)) for c in keys[missing[0]]])
    places = (rows >= 0).nonzero()[:, 0]
    return rows[places], places
