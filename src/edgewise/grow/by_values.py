"""Rows appended to a model whose groundings depend on values: what holds for a row is decided when
it comes, from the values of the rows so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.ground.index import Constants
from edgewise.grow.axes import CannotGrow, refusal
from edgewise.grow.growing import BadAppend, Growing, _is_dense
from edgewise.grow.masks import DataMask, causal_mask, data_masks, lengthened
from edgewise.inputs.kinds import numbers
from edgewise.physical.data import Data
from edgewise.physical.relation import Relation
from edgewise.physical.step import Step

if TYPE_CHECKING:
    from edgewise.module import Model
    from edgewise.selecting import Selecting

ALONE = "append the samples one by one, each to a `growing` of its own"


class GrowingByValues(Growing):
    """Each condition on values grows by itself; which pairs hold among the rows so far follows.

    >>> import torch
    >>> from edgewise import F, Program, R, V
    >>> rules = [
    ...     (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), R.gate(V.J) > 0.5, V.J <= V.I))
    ...     | [F.product, F.softmax_agg(agg_terms=[V.J])],
    ...     (R.h(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ... ]
    >>> model, x, gate = Program(rules).compile(R.h), torch.eye(3), torch.tensor([[1.0], [0], [1]])
    >>> growing = model.growing(8)
    >>> parts = [growing(x=x[:2], gate=gate[:2]), growing(x=x[2:], gate=gate[2:])]
    >>> torch.allclose(torch.cat(parts), model(x=x, gate=gate))
    True
    """

    model: Selecting

    def __init__(self, model: Selecting, capacity: int, fixed: Mapping[str, Any]) -> None:
        model._refuse_inputs(fixed)
        dense = {n: t for n, t in fixed.items() if _is_dense(t)}
        super().__init__(model, capacity, _read_by(model, dense))
        others = {n: t for n, t in fixed.items() if n not in dense}
        self._undecided = model.undecided(others)
        self._sides = [
            ConditionRows(part, capacity, _read_by(part, fixed)) for _, part in model.parts
        ]
        self._grounded: Data | None = None  # grounded on the selections of the rows so far
        self._shaped: dict[Any, Data] = {}  # by the shapes of what is appended

    def _append(self, inputs: dict[str, Any]) -> Tensor | Relation:
        self.model._refuse_inputs(inputs)
        own = _read_by(self.model, inputs)
        if not own:
            names = " and ".join(f"`{name}`" for name in self.model._reader.required)
            raise BadAppend("only conditions read these inputs", caller(), f"give {names} too")
        self._refuse_changed_weights()
        self._grounded = self._decided(inputs)
        self._grounded.to_come = True
        found = super()._append(own)
        others = {name: item for name, item in inputs.items() if name not in own}
        self._history.append(others, dict.fromkeys(others, 0))
        return found

    def _decided(self, inputs: Mapping[str, Any]) -> Data:
        def rows(at: int, model: Model, known: Mapping[str, Any]) -> Relation:
            if any(name in model._reader.arities for name in known):
                name = self.model.parts[at][0]
                raise refusal(f"the condition `{name[1:]}` reads what another one chooses", None)
            return self._sides[at].appended(self.length, inputs)

        return self.model.decided(self._undecided, rows)

    def _resolved(self, inputs: dict[str, Any]) -> tuple[Step, dict[str, Tensor]]:
        """The plan is that of rows which are the first, since these all have keys; the pairs of
        rows behind others come from the mask."""
        assert self._grounded is not None
        tensors = (t.values if isinstance(t, numbers) else t for t in inputs.values())
        shapes = tuple(getattr(item, "shape", ()) for item in tensors)
        data = self._shaped.setdefault(shapes, self._grounded) if self.length else self._grounded
        return self.model._resolved(data, self._fixed | inputs)

    def _data_masks(self, step: Step, inputs: Mapping[str, Any]) -> dict[str, DataMask]:
        axes = {name: int(step.executable.sources[name].batched) for name in inputs}
        rows = self.length + self.cache.rows
        for side in self._sides:
            if side.found is None and side.growing.length != rows:
                new = f"{self.cache.rows} and {side.growing.length - self.length}"
                raise BadAppend(
                    f"the inputs have different numbers of new rows ({new})",
                    caller(),
                    "give as many of each",
                )
        longer = lengthened(inputs, axes, rows)
        every, _ = self.model._resolved(self._grounded, self._fixed | longer)
        return {
            name: causal_mask(one, rows, itself=False) for name, one in data_masks(every).items()
        }

    def _furthest(self) -> float:
        return math.inf  # a value may choose whatever comes later

    def take(self, samples: Tensor | Sequence[int]) -> Never:
        raise CannotGrow("conditions may differ between the samples of a batch", caller(), ALONE)


class ConditionRows:
    """The value of a condition at the rows so far, appended to or, where no input of it grows,
    computed once."""

    def __init__(self, model: Model, capacity: int, fixed: Mapping[str, Any]) -> None:
        self.model, self.capacity, self.fixed = model, capacity, fixed
        self.growing = Growing(model, capacity, fixed)
        self.values: Tensor | None = None
        self.found: Relation | None = None

    def appended(self, length: int, inputs: Mapping[str, Any]) -> Relation:
        """The values at all rows: those so far, of which `length` hold, and the new ones."""
        own = _read_by(self.model, inputs)
        if not own:
            return self._fixed()
        if not length:  # what was refused may have been of another batch
            self.growing = Growing(self.model, self.capacity, self.fixed)
        growing, (output,) = self.growing, self.model.plan.outputs
        if growing.length > length:
            growing.crop(length)
        new = growing(**own)
        if growing._batched or any(growing._history.axes.values()):
            raise CannotGrow(
                "conditions may differ between the samples of a batch", caller(), ALONE
            )
        if not isinstance(new, Tensor):
            raise refusal(f"`{output.relation[1:]}` is not on dense axes", None)
        axis = growing._axes[output.relation]
        if self.values is not None and length:
            new = torch.cat([self.values.narrow(axis, 0, length), new], axis)
        self.values = new
        return _relation(output.relation, new, len(output.terms))

    def _fixed(self) -> Relation:
        if self.found is None:
            dense = {n: t for n, t in self.fixed.items() if _is_dense(t)}
            others = {n: t for n, t in self.fixed.items() if n not in dense}
            with torch.no_grad():
                found = self.model.rows(self.model.ground(**others), **dense)
            assert isinstance(found, Relation)
            self.found = found
        return self.found


def _relation(name: str, values: Tensor, arity: int) -> Relation:
    """Values on dense axes as rows."""
    sizes, shape = values.shape[:arity], values.shape[arity:]
    keys = torch.from_numpy(np.indices(sizes).reshape(arity, -1))
    return Relation(name, keys, values.reshape(-1, *shape), Constants(()), False)


def _read_by(model: Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in inputs.items() if name in model._reader.arities}
