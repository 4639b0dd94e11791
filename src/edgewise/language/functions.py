"""The functions of values: their names, kinds and arguments. What they compute is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from edgewise.errors import EdgewiseError, caller, nearest, safe_repr
from edgewise.language import nodes, operators

TRANSFORMATION, COMBINATION, AGGREGATION = "transformation", "combination", "aggregation"


class UnknownFunction(EdgewiseError):
    """`F` holds the functions that rules can use."""

    code = "unknown-function"
    example = "(R.h(V.X) <= R.a(V.X)) | [F.rellu]"
    instead = "(R.h(V.X) <= R.a(V.X)) | [F.relu]"


class BadFunction(EdgewiseError):
    """A function was given arguments it does not take, or stands where its kind has no meaning."""

    code = "bad-function"
    example = "(R.h(V.X) <= R.a(V.X)) | [F.leaky_relu(0.1, 0.2)]"
    instead = "(R.h(V.X) <= R.a(V.X)) | [F.leaky_relu(0.1)]"


@dataclass(frozen=True)
class Signature:
    """The kind of a function and its arguments with their defaults."""

    kind: str
    defaults: dict[str, Any] = field(default_factory=dict)


REQUIRED = object()


def _of(kind: str, plain: str, **others: dict[str, Any]) -> dict[str, Signature]:
    table = {name: Signature(kind) for name in plain.split()}
    return table | {name: Signature(kind, defaults) for name, defaults in others.items()}


SIGNATURES = (
    _of(
        TRANSFORMATION,
        "relu sigmoid tanh gelu gelu_tanh silu elu softplus softmax sparsemax exp log sqrt square "
        "abs sin cos inverse reverse signum lukasiewicz transp identity",
        leaky_relu={"slope": 0.01},
        norm={"eps": 1e-10},
        rms_norm={"eps": 1e-10},
        clamp={"low": REQUIRED, "high": REQUIRED},
        slice={"rows": None, "cols": None},
        reshape={"shape": REQUIRED},
        dropout={"p": REQUIRED},
        call={"module": REQUIRED},
    )
    | _of(
        COMBINATION,
        "sum product elproduct avg max min count crossum cossim softmax_comb sparsemax_comb "
        "lookup rotate",
        concat={"axis": -1},
    )
    | _of(
        AGGREGATION,
        "sum_agg avg_agg max_agg min_agg count_agg concat_agg std_agg median_agg lse_agg",
        softmax_agg={"agg_terms": None},
        sparsemax_agg={"agg_terms": None},
        topk_agg={"k": REQUIRED},
    )
)


ELSEWHERE = {  # what other libraries call ours
    "add": "sum",
    "cat": "concat",
    "embedding": "lookup",
    "gelu_new": "gelu_tanh",
    "rmsnorm": "rms_norm",
    "rope": "rotate",
    "layer_norm": "norm",
    "layernorm": "norm",
    "matmul": "product",
    "mean": "avg",
    "mean_agg": "avg_agg",
    "mul": "elproduct",
    "prod": "product",
    "step": "signum",
    "swish": "silu",
    "transpose": "transp",
}


def kind(function: nodes.Function) -> str:
    return SIGNATURES[function.name].kind


def argument(function: nodes.Function, name: str) -> Any:
    """The value of an argument, its default if it was not given."""
    return dict(function.arguments).get(name, SIGNATURES[function.name].defaults[name])


def named(name: str, place: Any = None) -> nodes.Function:
    """The function called `name`, with its default arguments.

    >>> named("relu")
    F.relu
    """
    if name not in SIGNATURES:
        near = ELSEWHERE.get(name.lower()) or nearest(name, list(SIGNATURES))
        raise UnknownFunction(
            f"there is no function `{name}`",
            place,
            f"did you mean `F.{near}`?" if near else "see docs/reference/functions for the list",
        )
    return nodes.Function(name, place=place)


def call(function: nodes.Function, items: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """`F.name(...)`: a function of atoms, or the function with its arguments."""
    operands = [item for item in items if isinstance(item, nodes.Expression)]
    arguments = [item for item in items if not isinstance(item, nodes.Expression)]
    if kind(function) == COMBINATION and operands:  # F.sum(R.a, 2.0): numbers are operands
        operands, arguments = list(items), []
    ready = _with_arguments(function, arguments, keywords)
    if not operands:
        return ready
    if kind(ready) == AGGREGATION:
        raise BadFunction(
            f"`F.{ready.name}` aggregates groundings and cannot be applied to an atom",
            caller(),
            f"put it into the rule's list: `(head <= body) | [F.{ready.name}]`",
        )
    if kind(ready) == TRANSFORMATION and len(operands) > 1:
        raise BadFunction(
            f"`F.{ready.name}` takes one operand, got {len(operands)}",
            caller(),
            "combine the operands first, as in `F.relu(R.a + R.b)`",
        )
    return operators.apply(_complete(ready), *operands)


def _with_arguments(
    function: nodes.Function, items: list[Any], keywords: dict[str, Any]
) -> nodes.Function:
    defaults = SIGNATURES[function.name].defaults
    given = dict(zip(defaults, items, strict=False)) | keywords
    unknown = [name for name in keywords if name not in defaults]
    if len(items) > len(defaults) or unknown:
        raise BadFunction(
            f"`F.{function.name}` takes {', '.join(map(repr, defaults)) or 'no argument'}"
            + (f", not {unknown[0]!r}" if unknown else f", got {len(items)} arguments"),
            caller(),
            f"write `F.{function.name}" + (f"({', '.join(defaults)})`" if defaults else "`"),
        )
    pairs = tuple(
        (name, _frozen(function, name, given[name])) for name in defaults if name in given
    )
    pairs = tuple((name, value) for name, value in pairs if value != defaults[name])
    known = dict(function.arguments, **dict(pairs))
    ordered = tuple((name, known[name]) for name in defaults if name in known)
    return replace(function, arguments=ordered, place=caller())


def _frozen(function: nodes.Function, name: str, value: Any) -> Any:
    """An argument as hashable data, checked."""
    match name, value:
        case "agg_terms", list() | tuple() if all(
            isinstance(v, str | nodes.Variable) for v in value
        ):
            return tuple(v if isinstance(v, str) else v.name for v in value)
        case "agg_terms", None:
            return None
        case "module", _ if callable(value):
            return nodes.Opaque(value)
        case "rows" | "cols", None:
            return None
        case "rows" | "cols", (int(), int()) | [int(), int()] if 0 <= value[0] < value[1]:
            return tuple(value)
        case "shape", int() if value > 0:
            return (value,)
        case "shape", (int(),) | (int(), int()) if all(v > 0 for v in value):
            return tuple(value)
        case "axis", 0 | -1:
            return value
        case "k", int() if value > 0 and not isinstance(value, bool):
            return value
        case "p", float() | int() if 0 <= value < 1:
            return float(value)
        case "slope" | "eps" | "low" | "high", float() | int():
            return float(value)
    raise BadFunction(
        f"`F.{function.name}` cannot take {name}={safe_repr(value)}", caller(), HELP.get(name, "")
    )


HELP = {
    "agg_terms": "write head variables: `F.softmax_agg(agg_terms=[V.J])`",
    "module": "write `F.call(module)` with an nn.Module or a function of one value",
    "rows": "write a half-open range: `F.slice(rows=(0, 2))`",
    "cols": "write a half-open range: `F.slice(cols=(0, 2))`",
    "shape": "write positive sizes: `F.reshape((2, 3))`",
    "slope": "write a number: `F.leaky_relu(0.2)`",
    "eps": "write a number: `F.norm(eps=1e-5)`",
    "low": "write numbers: `F.clamp(low=0.0, high=1.0)`",
    "high": "write numbers: `F.clamp(low=0.0, high=1.0)`",
    "axis": "`axis=-1` flattens, `axis=0` stacks rows",
    "k": "write a positive integer: `F.topk_agg(3)`",
    "p": "write a probability, 0 ≤ p < 1: `F.dropout(0.1)`",
}


def listed(items: Any) -> tuple[nodes.Function, ...]:
    """What follows `|`: one function or a list of them, each with its arguments complete."""
    found = tuple(items) if isinstance(items, list | tuple) else (items,)
    for item in found:
        if not isinstance(item, nodes.Function):
            raise BadFunction(
                f"`{safe_repr(item)}` is not a function",
                caller(),
                "write functions of `F`: `| [F.relu]`",
            )
        _complete(item)
    return found


def _complete(function: nodes.Function) -> nodes.Function:
    for name, default in SIGNATURES[function.name].defaults.items():
        if default is REQUIRED and name not in dict(function.arguments):
            raise BadFunction(
                f"`F.{function.name}` needs `{name}`",
                function.place or caller(),
                HELP.get(name, f"write `F.{function.name}({name}=...)`"),
            )
    return function
