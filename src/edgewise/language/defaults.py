"""The defaults of a program: its aggregation, its number of rounds and the domains of variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgewise.errors import EdgewiseError, caller, safe_repr
from edgewise.functions import Law
from edgewise.language import functions, nodes, terms
from edgewise.language.symbols import F

Domain = int | tuple[nodes.Constant, ...]


class BadDefault(EdgewiseError):
    """A program's defaults are an aggregation, a number of rounds and the domains of variables."""

    code = "bad-default"
    example = "Program([R.h(V.X) <= R.a(V.X, V.Y)], aggregation=F.avg)"
    instead = "Program([R.h(V.X) <= R.a(V.X, V.Y)], aggregation=F.avg_agg)"


def members(domain: Domain) -> Sequence[nodes.Constant]:
    return range(domain) if isinstance(domain, int) else domain


def aggregation_of(chosen: Any) -> nodes.Function:
    if chosen is None:
        return F.sum_agg
    if (
        not isinstance(chosen, nodes.Function)
        or functions.kind(chosen) != functions.AGGREGATION
        or Law.NORMALISES in functions.definition(chosen)
    ):
        raise BadDefault(
            f"`{safe_repr(chosen)}` cannot be the default aggregation",
            caller(),
            "use one that ends in `_agg`, such as `aggregation=F.avg_agg`",
        )
    return functions.listed(chosen)[0]


def rounds_of(chosen: Any) -> int | None:
    if chosen is not None and (
        not isinstance(chosen, int) or isinstance(chosen, bool) or chosen < 1
    ):
        raise BadDefault(
            f"`rounds={safe_repr(chosen)}` is not a number of rounds",
            caller(),
            "write a positive integer",
        )
    return chosen


def domains_of(chosen: Mapping[Any, Any]) -> tuple[tuple[str, Domain], ...]:
    place = caller()
    if not isinstance(chosen, Mapping):
        raise BadDefault(
            f"domains are a mapping, got {type(chosen).__name__}",
            place,
            "write `domains={V.H: 8}`",
        )
    found: dict[str, Domain] = {}
    for variable, values in chosen.items():
        name = variable.name if isinstance(variable, nodes.Variable) else variable
        is_size = isinstance(values, int) and not isinstance(values, bool) and 0 < values < 1 << 63
        listed = isinstance(values, list | tuple | range) and len(values) > 0
        open_ = listed and any(isinstance(v, nodes.Variable) for v in values)
        if not isinstance(name, str) or not (is_size or listed) or open_:
            raise BadDefault(
                f"`{safe_repr(variable)}: {safe_repr(values)}` is not a domain",
                place,
                "write `domains={V.H: 8}` for 0..7, or a list of constants",
            )
        found[name] = values if is_size else tuple(dict.fromkeys(terms.checked(values, place)))  # type: ignore[arg-type]
    return tuple(sorted(found.items()))
