"""The values of weights: given, or drawn as `torch.nn.Linear` draws its own."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import EdgewiseError, caller, nearest
from edgewise.language import nodes
from edgewise.language.names import name_weights
from edgewise.language.program import Domain, Program
from edgewise.language.statements import weights as weights_of
from edgewise.language.terms import variables
from edgewise.reference.join import Assignment, members
from edgewise.reference.values import canonical


class UnknownWeight(EdgewiseError):
    """Weights are given by name, and every name must be one of the program's."""

    code = "unknown-weight"
    example = 'Program([R.h <= R.a["w": 2.0]]).solve([R.a[1.0]], weights={"v": 3.0})'
    instead = 'Program([R.h <= R.a["w": 2.0]]).solve([R.a[1.0]], weights={"w": 3.0})'


def initial_weights(
    program: Program, *, seed: int | None = None, dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    """Every learnable weight by name, ready for an optimiser and for `solve(weights=...)`."""
    table = WeightTable(name_weights(program), dict(program.domains), seed=seed, dtype=dtype)
    return table.learnable


class WeightTable:
    """Weight name → tensor; a family is one tensor whose first axes are its domains."""

    def __init__(
        self,
        statements: Iterable[nodes.Statement],
        domains: Mapping[str, Domain],
        *,
        seed: int | None = None,
        dtype: torch.dtype = torch.float64,
        given: Mapping[str, Any] | None = None,
    ) -> None:
        self.domains = domains
        self.dtype = dtype
        self.tensors: dict[str, Tensor] = {}
        self.learnable: dict[str, Tensor] = {}
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        declared = [w for s in statements for w in weights_of(s) if w.is_declared]
        given = dict(given or {})
        for weight in declared:
            name = str(weight.name)
            if name not in self.tensors:  # the first value in program order wins
                start = given.pop(name, None)
                made = self._start(weight, generator) if start is None else self._given(start)
                self.tensors[name] = made
                if not weight.is_fixed:
                    self.learnable[name] = made
        if given:
            self._refuse(next(iter(given)))

    def _refuse(self, name: str) -> None:
        near = nearest(name, list(self.tensors))
        raise UnknownWeight(
            f"the program has no weight `{name}`",
            caller(),
            f"did you mean `{near}`?" if near else f"its weights are {', '.join(self.tensors)}",
        )

    def _given(self, value: Any) -> Tensor:
        if isinstance(value, Tensor):
            return value
        return torch.as_tensor(value, dtype=self.dtype).requires_grad_()

    def _start(self, weight: nodes.Weight, generator: torch.Generator | None) -> Tensor:
        sizes = [len(members(self.domains[v.name])) for v in variables(weight.keys)]
        if weight.shape is not None:
            start = self._drawn((*sizes, *weight.shape), weight, generator)
        else:
            thing = weight.value.thing if isinstance(weight.value, nodes.Held) else weight.value
            if isinstance(thing, torch.nn.Parameter) or (
                isinstance(thing, Tensor) and thing.requires_grad
            ):
                return thing
            one = torch.as_tensor(thing, dtype=self.dtype).detach()
            start = one.expand((*sizes, *one.shape)).clone()
        return start if weight.is_fixed else torch.nn.Parameter(start)

    def _drawn(
        self, shape: tuple[int, ...], weight: nodes.Weight, generator: torch.Generator | None
    ) -> Tensor:
        if weight.fill is not None:
            return torch.full(shape, weight.fill, dtype=self.dtype)
        bound = 1 / math.sqrt(shape[-1])
        return torch.empty(shape, dtype=self.dtype).uniform_(-bound, bound, generator=generator)

    def value(self, weight: nodes.Weight, bound: Assignment) -> Tensor:
        """The weight under an assignment of its keys, as a value."""
        tensor = self.tensors[str(weight.name)]
        for key in weight.keys:
            if isinstance(key, nodes.Variable):
                tensor = tensor[members(self.domains[key.name]).index(bound[key.name])]
        return canonical(tensor.to(self.dtype))
