"""`F`: the functions of `edgewise.functions` as rules write them, with their arguments checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgewise.errors import EdgewiseError, caller, nearest, safe_repr
from edgewise.functions import AGGREGATION as AGGREGATION
from edgewise.functions import COMBINATION as COMBINATION
from edgewise.functions import DEFINITIONS as DEFINITIONS
from edgewise.functions import REQUIRED, Definition
from edgewise.functions import TRANSFORMATION as TRANSFORMATION
from edgewise.functions.definition import Option
from edgewise.functions.dimensions import Shapes, union
from edgewise.language import nodes, operators


class UnknownFunction(EdgewiseError):
    """`F` holds the functions that rules can use."""

    code = "unknown-function"
    example = "(R.h(V.X) <= R.a(V.X)) | [F.rellu]"
    instead = "(R.h(V.X) <= R.a(V.X)) | [F.relu]"


class BadFunction(EdgewiseError):
    """A function has arguments that it does not take, or stands where its kind has no meaning."""

    code = "bad-function"
    example = "(R.h(V.X) <= R.a(V.X)) | [F.leaky_relu(0.1, 0.2)]"
    instead = "(R.h(V.X) <= R.a(V.X)) | [F.leaky_relu(0.1)]"


ELSEWHERE = {other: d.name for d in DEFINITIONS.values() for other in d.aliases}


def definition(function: nodes.Function) -> Definition:
    """Its entry in the table."""
    return DEFINITIONS[function.name]


def kind(function: nodes.Function) -> str:
    return DEFINITIONS[function.name].kind


def argument(function: nodes.Function, name: str) -> Any:
    """The value of an argument, its default if it was not written."""
    return arguments(function)[name]


def arguments(function: nodes.Function) -> dict[str, Any]:
    """All arguments of a function, defaults included."""
    defaults = {option.name: option.default for option in DEFINITIONS[function.name].options}
    return defaults | dict(function.arguments)


def shapes_of(function: nodes.Function, shapes: Any) -> Shapes:
    """The shapes of a result: of a set of shapes, or of a list of sets for a combination."""
    rule, options = DEFINITIONS[function.name].shape, arguments(function)
    if kind(function) == TRANSFORMATION:
        return union(rule(shape, **options) for shape in shapes)
    found: Shapes = rule(shapes, **options)
    return found


def named(name: str, place: Any = None) -> nodes.Function:
    """The function called `name`, with its default arguments.

    >>> named("relu")
    F.relu
    """
    if name not in DEFINITIONS:
        near = ELSEWHERE.get(name.lower()) or nearest(name, list(DEFINITIONS))
        help = f"did you mean `F.{near}`?" if near else "see docs/reference/functions for the list"
        meant = DEFINITIONS[near].counterpart if near else None
        if meant is not None:
            help = f"`F.{meant}` is over groundings, `F.{near}` over the values of a body"
        raise UnknownFunction(f"there is no function `{name}`", place, help)
    return nodes.Function(name, place=place)


def call(function: nodes.Function, items: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """`F.name(...)`: a function of atoms, or the function with its arguments."""
    operands = [item for item in items if isinstance(item, nodes.Expression)]
    options = [item for item in items if not isinstance(item, nodes.Expression)]
    if kind(function) == COMBINATION and operands:  # F.sum(R.a, 2.0): numbers are operands
        operands, options = list(items), []
    ready = _with_arguments(function, options, keywords)
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
    options = {option.name: option for option in DEFINITIONS[function.name].options}
    written = dict(zip(options, items, strict=False)) | keywords
    unknown = [name for name in keywords if name not in options]
    if len(items) > len(options) or unknown:
        raise BadFunction(
            f"`F.{function.name}` takes {', '.join(map(repr, options)) or 'no argument'}"
            + (f", not {unknown[0]!r}" if unknown else f", got {len(items)} arguments"),
            caller(),
            _options_help(function, options, unknown),
        )
    known = dict(function.arguments)
    for name, value in written.items():
        read = _read(function, options[name], value)
        if read != options[name].default:
            known[name] = read
    ordered = tuple((name, known[name]) for name in options if name in known)
    return replace(function, arguments=ordered, place=caller())


def _options_help(
    function: nodes.Function, options: Mapping[str, Option], unknown: Sequence[str]
) -> str:
    """What to write for arguments that a function does not take."""
    if not options:
        return f"write `F.{function.name}`"
    near = nearest(unknown[0], list(options)) if unknown else None
    return _option_help(function, options[near or next(iter(options))])


def _option_help(function: nodes.Function, option: Option) -> str:
    """What to write for an option, which other functions have too."""
    return re.sub(r"`F\.\w+\(", f"`F.{function.name}(", option.help)


def _read(function: nodes.Function, option: Option, value: Any) -> Any:
    """An argument as hashable data."""
    if value is None and option.default is None:
        return None
    if isinstance(value, list | tuple):  # variables go by their names
        value = [item.name if isinstance(item, nodes.Variable) else item for item in value]
    found = option.read(value)
    if found is None:
        raise BadFunction(
            f"`F.{function.name}` cannot take {option.name}={safe_repr(value)}",
            caller(),
            _option_help(function, option),
        )
    return nodes.Opaque(found) if callable(found) else found


def listed(items: Any) -> tuple[nodes.Function, ...]:
    """What follows `|`: one function or a list of them, each with its arguments complete."""
    found = tuple(items) if isinstance(items, list | tuple) else (items,)
    for item in found:
        if not isinstance(item, nodes.Function):
            raise BadFunction(
                f"`{safe_repr(item)}` is not a function",
                caller(),
                _instead(item),
            )
        _complete(item)
    return found


def _instead(item: Any) -> str:
    """`[torch.tanh]`, `["tanh"]`, `[nn.ReLU()]`: what to write in the list."""
    name = item if isinstance(item, str) else getattr(item, "__name__", "")
    same = DEFINITIONS.get(ELSEWHERE.get(name, name))
    if same is not None:
        return f"write `| [F.{same.name}]`"
    if hasattr(item, "forward"):
        return "a module applies to a body: `R.h(V.I) <= F.call(module)(R.x(V.I))`"
    return "write functions of `F`: `| [F.relu]`"


def _complete(function: nodes.Function) -> nodes.Function:
    for option in DEFINITIONS[function.name].options:
        if option.default is REQUIRED and option.name not in dict(function.arguments):
            raise BadFunction(
                f"`F.{function.name}` needs `{option.name}`",
                function.place or caller(),
                _option_help(function, option),
            )
    return function
