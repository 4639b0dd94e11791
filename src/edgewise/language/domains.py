"""Programs put together: each has its own domains, so that 8 heads and 1 head stack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from edgewise.language import nodes
from edgewise.language.statements import MAX_NESTED, mapped, substitute


def merged(
    items: Iterable[Any], domains: Mapping[str, Any], depth: int = 0
) -> tuple[list[Any], dict[str, Any]]:
    """The items of a program with the domains of programs among them, renamed apart.

    Variables belong to a rule, so one that has another domain in another program gets another name.

    >>> from edgewise.language import Program, R, V, W
    >>> def heads(name, count):
    ...     return Program([R[name](V.H) <= R.x[W[name](V.H)[2.0]]], domains={V.H: count})
    >>> Program([heads("a", 8), heads("b", 1)]).domains
    (('H', 8), ('H_2', 1))
    """
    found: list[Any] = []
    known = dict(domains)
    for item in items:
        if hasattr(item, "statements") and hasattr(item, "domains"):
            names = {
                name: _fresh(name, domain, known)
                for name, domain in item.domains
                if known.get(name, domain) != domain
            }
            for name, domain in item.domains:
                known[names.get(name, name)] = domain
            found += [renamed(s, names) for s in item.statements] if names else [item]
        elif isinstance(item, list | tuple) and depth <= MAX_NESTED:
            inner, known = merged(item, known, depth + 1)
            found.append(inner)
        else:
            found.append(item)
    return found, known


def _fresh(name: str, domain: Any, known: Mapping[str, Any]) -> str:
    number = 2
    while known.get(f"{name}_{number}", domain) != domain:
        number += 1
    return f"{name}_{number}"


def renamed(node: Any, names: Mapping[str, str]) -> Any:
    """A statement with variables renamed, in its terms and in `agg_terms`."""
    match node:
        case nodes.Stack():
            return mapped(node, lambda inside: tuple(renamed(s, names) for s in inside))
        case nodes.Rule():
            terms = {old: nodes.Variable(new) for old, new in names.items()}
            functions = tuple(_function(f, names) for f in node.functions)
            return replace(substitute(node, terms), functions=functions)
    return node


def _function(function: nodes.Function, names: Mapping[str, str]) -> nodes.Function:
    arguments = tuple(
        (key, tuple(names.get(v, v) for v in value) if key == "agg_terms" and value else value)
        for key, value in function.arguments
    )
    return replace(function, arguments=arguments)
