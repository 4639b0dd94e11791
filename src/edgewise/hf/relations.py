"""Relations that come with the batch, as arguments of the model's call, such as `arc` or `speaker`.

| you pass | it is |
| --- | --- |
| a float tensor (batch, tokens, ..., size) | a vector for every token, or pair of tokens |
| a boolean tensor (batch, tokens, ...) | the tokens, or pairs, for which it holds |
| an integer tensor (batch, tokens) | a label s of each token i: `speaker(i, s)`; none where s < 0 |
| an integer tensor (batch, arity, rows) | keys; a column with a negative one is padding |
| a list with a tensor for every sample | as above, without the batch |

To `generate` you pass a relation of all tokens that may be there, those of the prompt and the new
ones, or a function from the tokens so far (batch, tokens) to one of the above.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.hf.errors import BadRelation, MissingRelation
from edgewise.hf.masks import TokenRuns
from edgewise.inputs.kinds import ragged
from edgewise.language import nodes
from edgewise.language.program import Program
from edgewise.language.statements import arities_of, atoms
from edgewise.module import Model
from edgewise.physical.data import Data

PREPARE_INPUTS = "prepare_inputs_for_generation"

# Which terms of the relations of attention are tokens.
TOKENS = {"q": {1}, "k": {1}, "v": {1}, "bias": {1, 2}, "out": {1}}


@dataclass(frozen=True, eq=False)
class BatchRelation:
    """One relation for all samples: dense values (batch, tokens..., size), or keys of each sample.

    `token_axes` are the terms that count tokens; other terms are labels.
    """

    name: str
    arity: int
    token_axes: frozenset[int]
    dense: Tensor | None = None
    keys: tuple[Tensor, ...] = ()

    def of_runs(self, runs: TokenRuns | None) -> Tensor | ragged:
        """The input of the program for runs of tokens, or for all rows of the batch."""
        if runs is None:
            return ragged(self.keys) if self.dense is None else self.dense
        rows, firsts, lengths = runs.places()
        if self.dense is None:
            parts = zip(rows, firsts, lengths, strict=True)
            return ragged([self._moved(self.keys[row], first, size) for row, first, size in parts])
        found = []
        for row, first, size in zip(rows, firsts, lengths, strict=True):
            one = self.dense[row]
            for axis in sorted(self.token_axes):
                one = one.narrow(axis, first, size)
            found.append(one)
        return torch.stack(found)

    def _moved(self, keys: Tensor, first: int, size: int) -> Tensor:
        axes = sorted(self.token_axes)
        inside = ((keys[axes] >= first) & (keys[axes] < first + size)).all(0)
        keys = keys[:, inside].clone()
        keys[axes] -= first
        return keys


def token_axes(program: Program) -> dict[str, frozenset[int]]:
    """Which terms of each relation are tokens: their variables are those of q, k, v or a pattern.

    >>> from edgewise import R, V
    >>> same = R.same(V.I, V.J) <= (R.speaker(V.I, V.S), R.speaker(V.J, V.S))
    >>> found = token_axes(Program([same, R.out(V.H, V.I) <= (R.v(V.H, V.J), R.same(V.I, V.J))]))
    >>> sorted(found["speaker"]), sorted(found["same"])
    ([0], [0, 1])
    """
    found = {name: set(axes) for name, axes in TOKENS.items()}
    before = -1
    while before != sum(map(len, found.values())):
        before = sum(map(len, found.values()))
        for rule in program.rules:
            listed = [rule.head, *atoms(rule.body)]
            names = {
                term.name
                for atom in listed
                for axis, term in enumerate(atom.terms)
                if isinstance(term, nodes.Variable)
                and (
                    isinstance(atom, nodes.PatternAtom)
                    or (isinstance(atom, nodes.Atom) and axis in found.get(atom.relation, ()))
                )
            }
            for atom in listed:
                if isinstance(atom, nodes.Atom):
                    at = {
                        axis
                        for axis, term in enumerate(atom.terms)
                        if isinstance(term, nodes.Variable) and term.name in names
                    }
                    found.setdefault(atom.relation, set()).update(at)
    return {name: frozenset(axes) for name, axes in found.items()}


@dataclass(frozen=True, eq=False)
class Planned:
    """A relation of a text that grows: of its tokens the first ones are there."""

    item: Any


@dataclass(frozen=True, eq=False)
class PrepareInputs:
    """`prepare_inputs_for_generation` of a model whose programs read the relations `names`.

    Those of `growing` are relations of the tokens that are generated; others are of a source.
    """

    model: Any
    names: frozenset[str]
    growing: frozenset[str]

    @property
    def __signature__(self) -> inspect.Signature:
        """With the relations, which `generate` refuses otherwise."""
        own = inspect.signature(self._plain)
        *before, last = list(own.parameters.values())[1:]
        named = inspect.Parameter.KEYWORD_ONLY
        more = [inspect.Parameter(name, named, default=None) for name in sorted(self.names)]
        return own.replace(parameters=[*before, *more, last])

    @property
    def _plain(self) -> Callable[..., dict[str, Any]]:
        found: Callable[..., dict[str, Any]] = getattr(type(self.model), PREPARE_INPUTS)
        return found

    def __call__(self, input_ids: Tensor, *rest: Any, **arguments: Any) -> dict[str, Any]:
        made = self._plain(self.model, input_ids, *rest, **arguments)
        for name in self.growing & made.keys():
            made[name] = _at_step(made[name], input_ids)
        return made


def _at_step(item: Any, ids: Tensor) -> Any:
    """A relation for the tokens so far; lists have one entry for all beams of a sample."""
    if callable(item):
        return item(ids)
    if isinstance(item, list | tuple) and item and len(ids) > len(item):
        item = [one for one in item for _ in range(len(ids) // len(item))]
    return item if item is None else Planned(item)


class GroundedBatch:
    """The relations of the last batch, read and joined once for all layers."""

    def __init__(self) -> None:
        self.key: tuple[Any, ...] = ()
        self.items: tuple[Any, ...] = ()  # alive, so that their ids are of no others
        self.found: dict[str, BatchRelation] = {}
        self.data: dict[Any, Data | None] = {}

    def read(
        self, arguments: Mapping[str, Any], names: Sequence[str], program: Program, q: Tensor
    ) -> dict[str, BatchRelation]:
        """The relations `names` of a batch for queries q (batch, heads, n, d), checked."""
        for name in names:
            if name not in arguments:
                raise MissingRelation(
                    f"the program reads `{name}`, which the batch does not have",
                    caller(),
                    f"call `model(..., {name}=...)` or `generate(..., {name}=...)`; under "
                    "`Trainer` set `remove_unused_columns=False`",
                )
        items = tuple(arguments[name] for name in names)
        key = (q.shape[0], q.shape[-2], *map(_version, items))
        if key != self.key:
            arities, axes = arities_of(program.rules, program.facts), token_axes(program)
            found = {}
            for name, item in zip(names, items, strict=True):
                own = axes.get(name, frozenset())
                reader = _Reader(name, arities[name], own, q.shape[0], q.shape[-2])
                found[name] = reader.read(item)
            self.key, self.items, self.found, self.data = key, items, found, {}
        return self.found

    def inputs(
        self, program: Model, runs: TokenRuns | None
    ) -> tuple[dict[str, Tensor], Data | None]:
        """Dense values, and the others grounded, for some runs of tokens."""
        here = {name: one.of_runs(runs) for name, one in self.found.items()}
        keys = {name: item for name, item in here.items() if isinstance(item, ragged)}
        at = None if runs is None else tuple(zip(*runs.places(), strict=True))
        if at not in self.data:
            self.data[at] = program.ground(**dict[str, Any](keys)) if keys else None
        return {name: x for name, x in here.items() if isinstance(x, Tensor)}, self.data[at]


def _version(item: Any) -> tuple[int, ...]:
    """What changes if a tensor, or one of a list, is replaced or changed in place."""
    parts = item if isinstance(item, list | tuple) else (item,)
    return tuple(number for part in parts for number in (id(part), getattr(part, "_version", 0)))


@dataclass(frozen=True)
class _Reader:
    """Reads one argument of the call; `planned`: it may be for more tokens than n."""

    name: str
    arity: int
    axes: frozenset[int]
    batch: int
    n: int
    planned: bool = False

    def read(self, item: Any) -> BatchRelation:
        if isinstance(item, Planned):
            return replace(self, planned=True).read(item.item)
        if isinstance(item, Tensor):
            if item.is_floating_point():
                return BatchRelation(self.name, self.arity, self.axes, dense=self._dense(item))
            samples: Sequence[Any] = list(item)
        elif isinstance(item, list | tuple):
            samples = item
        else:
            raise self._bad(f"got {type(item).__name__}")
        if len(samples) != self.batch:
            raise self._bad(f"it has {len(samples)} samples, the batch {self.batch}")
        keys = tuple(self._keys(sample) for sample in samples)
        return BatchRelation(self.name, self.arity, self.axes, keys=keys)

    def _dense(self, item: Tensor) -> Tensor:
        item = item if item.ndim > self.arity + 1 else item[..., None]
        item = self._cut(item, *(axis + 1 for axis in self.axes))
        wanted = (self.batch, *(self.n for _ in range(self.arity)))
        sizes = item.shape[: self.arity + 1]
        known = [0, *(axis + 1 for axis in self.axes)]
        if len(sizes) != len(wanted) or any(sizes[at] != wanted[at] for at in known):
            raise self._bad(f"it is {tuple(item.shape)}, the batch is {self.batch}×{self.n}")
        return item

    def _cut(self, item: Tensor, *axes: int) -> Tensor:
        """The tokens that are there, where the others are planned."""
        for axis in axes if self.planned else ():
            item = item.narrow(axis, 0, min(self.n, item.shape[axis]))
        return item

    def _keys(self, sample: Any) -> Tensor:
        if not isinstance(sample, Tensor) or sample.is_floating_point() or sample.is_complex():
            raise self._bad("a sample is not an integer or boolean tensor")
        sample = sample.detach().cpu()
        if sample.dtype == torch.bool:
            sample = self._cut(sample, *range(sample.ndim))
            if sample.ndim != self.arity or sample.shape != (self.n,) * self.arity:
                raise self._bad(f"a sample is {tuple(sample.shape)}, it has {self.n} tokens")
            return sample.nonzero().T.contiguous()
        if sample.ndim == 1 and self.arity == 2:
            sample = self._cut(sample, 0)
            if len(sample) != self.n:
                raise self._bad(f"it has {len(sample)} labels for {self.n} tokens")
            sample = torch.stack([torch.arange(self.n), sample.long()])
        if sample.ndim != 2 or len(sample) != self.arity:
            raise self._bad(f"keys of a sample are {tuple(sample.shape)}, not ({self.arity}, rows)")
        sample = sample[:, (sample >= 0).all(0)].long()
        tokens = sample[sorted(self.axes)]
        if self.planned:
            sample = sample[:, (tokens < self.n).all(0)]
        elif tokens.numel() and int(tokens.max()) >= self.n:
            raise self._bad(f"it names token {int(tokens.max())}, samples have {self.n} tokens")
        return sample

    def _bad(self, what: str) -> BadRelation:
        arity = self.arity
        return BadRelation(
            f"`{self.name}`: {what}",
            caller(),
            "give `generate` a relation of the new tokens too, or a function of the tokens so far"
            if self.planned
            else f"pass integer keys (batch, {arity}, rows), or a boolean tensor or floats "
            f"(batch{', tokens' * arity})",
        )
