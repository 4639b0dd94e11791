"""The values of weights: set by name, or drawn as `torch.nn.Linear` draws its own."""

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from edgewise.checks.evaluation import NotANumber
from edgewise.errors import EdgewiseError, caller, safe_repr, suggest
from edgewise.functions.definition import ShapeMismatch
from edgewise.language import nodes
from edgewise.language.brackets import BadWeight, dense
from edgewise.language.defaults import BadDefault, Domain
from edgewise.language.program import Program
from edgewise.language.statements import applied_functions, name_weights
from edgewise.language.statements import weights as weights_of
from edgewise.language.terms import variables

# torch stores other floating-point numbers, but does not compute with them
PRECISIONS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class UnknownWeight(EdgewiseError):
    """Weights are set by name, and every name must be one of the program's."""

    code = "unknown-weight"
    example = 'Program([R.h <= R.a["w": 2.0]]).solve([R.a[1.0]], weights={"v": 3.0})'
    instead = 'Program([R.h <= R.a["w": 2.0]]).solve([R.a[1.0]], weights={"w": 3.0})'


class WeightTooLarge(EdgewiseError):
    """Weights are made before data is seen; one that does not fit into memory is a slip."""

    code = "weight-too-large"
    example = 'Program([R.h <= R.a["w": 1_000_000_000, 1_000_000_000]]).compile(R.h)'
    instead = 'Program([R.h <= R.a["w": 100, 100]]).compile(R.h)'


def exact(thing: Any, dtype: torch.dtype) -> Tensor:
    """Numbers as a tensor of `dtype`, without a detour through another precision.

    >>> exact(0.1, torch.float64).item()
    0.1
    """
    if isinstance(thing, int | float | tuple | list):
        return torch.as_tensor(thing, dtype=dtype)
    return torch.as_tensor(thing).to(dtype)


def _by_name(values: Any) -> dict[str, Any]:
    if values is None or isinstance(values, Mapping):
        return dict(values or {})
    raise UnknownWeight(
        f"weights are set by name, not as a {type(values).__name__}",
        caller(),
        'write `weights={"w": tensor}`',
    )


def initial_weights(
    program: Program, *, seed: int | None = None, dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    """Every learnable weight by name, ready for an optimiser and for `solve(weights=...)`."""
    table = WeightTable(name_weights(program), dict(program.domains), seed=seed, dtype=dtype)
    return table.learnable


def _check_options(seed: Any, dtype: Any) -> None:
    valid = isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 1 << 63
    if seed is not None and not valid:
        raise BadDefault(
            f"`seed={safe_repr(seed)}` is not a seed",
            caller(),
            "write an integer from 0 to 2^63 - 1",
        )
    if not isinstance(dtype, torch.dtype) or dtype not in PRECISIONS:
        raise BadDefault(
            f"`dtype={safe_repr(dtype)}` is not a precision to compute in",
            caller(),
            "give, for example, `torch.float32`",
        )


def declared_shape(weight: nodes.Weight) -> tuple[int, ...]:
    """The shape of a weight as it is written; of a family, that of each member."""
    if weight.shape is not None:
        return weight.shape
    thing: Any = weight.value.thing if isinstance(weight.value, nodes.Opaque) else weight.value
    return tuple(thing.shape) if hasattr(thing, "shape") else _depth(thing)


def _depth(value: Any) -> tuple[int, ...]:
    return (len(value), *_depth(value[0])) if isinstance(value, tuple) else ()


class WeightTable:
    """Weight name → tensor; a family is one tensor whose first axes are its domains."""

    def __init__(
        self,
        statements: Iterable[nodes.Statement],
        domains: Mapping[str, Domain],
        *,
        seed: int | None = None,
        dtype: torch.dtype = torch.float64,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self.domains = domains
        self.dtype = dtype
        self.tensors: dict[str, Tensor] = {}
        self.learnable: dict[str, Tensor] = {}
        _check_options(seed, dtype)
        declared = [w for s in statements for w in weights_of(s) if w.is_declared]
        values = _by_name(values)
        for weight in declared:
            name = str(weight.name)
            if name not in self.tensors:  # the first value in program order wins
                made = (
                    self._set(weight, values.pop(name))
                    if name in values
                    else self._start(weight, seed)
                )
                self.tensors[name] = made
                if not weight.is_fixed:
                    self.learnable[name] = made
        if values:
            self._refuse(next(iter(values)))

    def _refuse(self, name: str) -> None:
        raise UnknownWeight(
            f"the program has no weight `{name}`",
            caller(),
            suggest(name, list(self.tensors), f"its weights are {', '.join(self.tensors)}"),
        )

    def _set(self, weight: nodes.Weight, value: Any) -> Tensor:
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            value = dense(value, caller())
        try:
            made = value if isinstance(value, Tensor) else exact(value, self.dtype)
        except (TypeError, ValueError, RuntimeError):
            raise UnknownWeight(
                f"the weight `{weight.name}` is set to {safe_repr(value)}", caller(), "give numbers"
            ) from None
        wanted = self._shape(weight)
        if tuple(made.shape) != wanted:
            raise ShapeMismatch(
                f"the weight `{weight.name}` has shape {wanted}, not {tuple(made.shape)}",
                caller(),
                "`program.weights(seed=0)` gives weights of the right shapes",
            )
        if made.is_complex() or (not isinstance(made, FakeTensor) and bool(made.isnan().any())):
            what = "is complex" if made.is_complex() else "holds NaN"
            raise NotANumber(f"the weight `{weight.name}` {what}", caller(), "set it to numbers")
        return made if isinstance(value, Tensor) else made.requires_grad_()

    def _shape(self, weight: nodes.Weight) -> tuple[int, ...]:
        domains = [self.domains[v.name] for v in variables(weight.keys)]
        sizes = [domain if isinstance(domain, int) else len(domain) for domain in domains]
        return (*sizes, *declared_shape(weight))

    def _start(self, weight: nodes.Weight, seed: int | None) -> Tensor:
        if weight.shape is not None:
            start = self._drawn(self._shape(weight), weight, seed)
        else:
            thing: Any = weight.value
            if isinstance(thing, nodes.Opaque):
                thing = thing.thing
                _refuse_complex_and_nan(thing, weight)
            if isinstance(thing, torch.nn.Parameter) or (
                isinstance(thing, Tensor) and thing.requires_grad
            ):
                return thing
            one = torch.as_tensor(thing, dtype=self.dtype).detach()
            start = one.expand(self._shape(weight)).clone()
        return start if weight.is_fixed else torch.nn.Parameter(start)

    def _drawn(self, shape: tuple[int, ...], weight: nodes.Weight, seed: int | None) -> Tensor:
        """A seed and a name give the same numbers in every precision, with any other weights."""
        if weight.fill is not None:
            return self._empty(shape, weight, self.dtype).fill_(weight.fill)
        bound = 1 / math.sqrt(shape[-1])
        if seed is None:
            return self._empty(shape, weight, self.dtype).uniform_(-bound, bound)
        digest = hashlib.blake2b(f"{seed} {weight.name}".encode(), digest_size=8).digest()
        own = torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
        start = self._empty(shape, weight, torch.float64)
        return start.uniform_(-bound, bound, generator=own).to(self.dtype)

    def _empty(self, shape: tuple[int, ...], weight: nodes.Weight, dtype: torch.dtype) -> Tensor:
        try:
            return torch.empty(shape, dtype=dtype)
        except RuntimeError:  # of the allocator
            size = math.prod(shape) * self.dtype.itemsize
            raise WeightTooLarge(
                f"the weight `{weight.name}` of shape {shape} takes {size / 2**30:,.0f} GiB",
                weight.place,
                "a weight is (out, in): give it the lengths of the values it maps",
            ) from None


def _refuse_complex_and_nan(thing: Any, weight: nodes.Weight) -> None:
    tensor = thing if isinstance(thing, Tensor) else torch.as_tensor(thing, device="cpu")
    if tensor.is_complex():
        raise BadWeight(
            f"the weight `{weight.name}` has complex numbers", weight.place, "give real ones"
        )
    tensor = tensor if tensor.dtype in PRECISIONS else tensor.double()
    if not isinstance(tensor, FakeTensor) and bool(tensor.isnan().any()):
        raise BadWeight(
            f"the value of the weight `{weight.name}` holds NaN",
            weight.place,
            "give numbers: `torch.nan_to_num(value)`",
        )


def called_modules(rules: Iterable[nodes.Rule]) -> list[torch.nn.Module]:
    """The modules that rules apply by `F.call`, each once."""
    found: dict[int, torch.nn.Module] = {}
    for rule in rules:
        for function in (*rule.functions, *applied_functions(rule.body)):
            held = dict(function.arguments).get("module")
            if isinstance(held, nodes.Opaque) and isinstance(held.thing, torch.nn.Module):
                found[id(held.thing)] = held.thing
    return list(found.values())
