"""One name, one weight: the same shape everywhere, and declared somewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgewise.checks import wording
from edgewise.errors import EdgewiseError, suggest
from edgewise.functions.definition import ShapeMismatch
from edgewise.functions.dimensions import Shape, matrix, show
from edgewise.language import Program, nodes, terms
from edgewise.language.defaults import Domain
from edgewise.language.statements import weights


class UndefinedWeight(EdgewiseError):
    """A weight that is only named has no shape, so it cannot be made."""

    code = "undefined-weight"
    example = """\
Program([
    R.h(V.X) <= R.a(V.X)["shared": 4, 4],
    R.g(V.X) <= R.h(V.X)["sharde"],
]).check()"""
    instead = """\
Program([
    R.h(V.X) <= R.a(V.X)["shared": 4, 4],
    R.g(V.X) <= R.h(V.X)["shared"],
]).check()"""


class FamilyMismatch(EdgewiseError):
    """A name stands for one weight, or for one weight per key; the number of keys is fixed."""

    code = "family-mismatch"
    example = """\
Program([
    R.q(V.H, V.I) <= R.x(V.I)[W.q(V.H)[4, 8]],
    R.k(V.I) <= R.x(V.I)[W.q[4, 8]],
], domains={V.H: 2}).check()"""
    instead = """\
Program([
    R.q(V.H, V.I) <= R.x(V.I)[W.q(V.H)[4, 8]],
    R.k(V.I) <= R.x(V.I)[W.k[4, 8]],
], domains={V.H: 2}).check()"""


class UndeclaredDomain(EdgewiseError):
    """A family has one weight per value of its keys, and weights exist before any data."""

    code = "undeclared-domain"
    example = "Program([R.q(V.H, V.I) <= R.x(V.I)[W.q(V.H)[4, 8]]]).check()"
    instead = "Program([R.q(V.H, V.I) <= R.x(V.I)[W.q(V.H)[4, 8]]], domains={V.H: 2}).check()"


def bad_weights(program: Program, facts: tuple[nodes.Atom, ...]) -> Iterator[EdgewiseError]:
    found = [weight for statement in program.flat for weight in weights(statement)]
    declared: dict[str, nodes.Weight] = {}
    for weight in found:
        if weight.name is not None and weight.is_declared:
            declared.setdefault(weight.name, weight)
    domains = dict(program.domains)
    for weight in found:
        if weight.name is not None:
            yield from _against(weight, declared)
            yield from _keys_of(weight, declared.get(weight.name, weight), domains)
        for variable in terms.variables(weight.keys):
            if variable.name not in domains:
                yield _undeclared(weight, variable, list(domains))


def _against(weight: nodes.Weight, declared: dict[str, nodes.Weight]) -> Iterator[EdgewiseError]:
    name = str(weight.name)
    first = declared.get(name)
    if first is None:
        yield UndefinedWeight(
            f"the weight `{name}` has no shape and no value anywhere",
            weight.place,
            suggest(name, list(declared), f"give it one: {wording.weight_with_shape(weight)}"),
        )
        return
    if len(first.keys) != len(weight.keys):
        yield FamilyMismatch(
            f"the weight `{name}` has {_keys(weight)} here and {_keys(first)} elsewhere"
            + wording.elsewhere(first.place, weight.place),
            weight.place,
            "use two names, or the same number of keys",
        )
    elif weight.is_declared and of_weight(weight) != of_weight(first):
        yield ShapeMismatch(
            f"the weight `{name}` is {show(of_weight(weight))} here and "
            f"{show(of_weight(first))} before{wording.elsewhere(first.place, weight.place)}",
            weight.place,
            f"a name stands for one weight: use another name, or `{name}` alone to refer to it",
        )


def _keys_of(
    weight: nodes.Weight, first: nodes.Weight, domains: Mapping[str, Domain]
) -> Iterator[EdgewiseError]:
    for key, before in zip(weight.keys, first.keys, strict=False):
        if not isinstance(key, nodes.Variable):
            yield FamilyMismatch(
                f"the key {key!r} of the weight `{weight.name}` is a constant",
                weight.place,
                "write a variable with a domain, and bind it in the body: "
                f"`R.special.eq(V.K, {key!r})`",
            )
        elif isinstance(before, nodes.Variable) and domains.get(key.name) != domains.get(
            before.name
        ):
            yield FamilyMismatch(
                f"the weight family `{weight.name}` has the key `{key.name}` here and "
                f"`{before.name}` elsewhere, whose domains differ",
                key.place or weight.place,
                f"give `{key.name}` and `{before.name}` the same domain, or use two names",
            )


def _keys(weight: nodes.Weight) -> str:
    count = len(weight.keys)
    return {0: "no key", 1: "1 key"}.get(count, f"{count} keys")


def _called(weight: nodes.Weight) -> str:
    return f"`{weight.name}` " if weight.name else ""


def _undeclared(
    weight: nodes.Weight, variable: nodes.Variable, domains: list[str]
) -> EdgewiseError:
    step = f"declare it: `Program(..., domains={{V.{variable.name}: 8}})`, or a list of constants"
    return UndeclaredDomain(
        f"the weight family {_called(weight)}has the key `{variable.name}`, which has no domain",
        variable.place or weight.place,
        suggest(variable.name, domains, step),
    )


def of_weight(weight: nodes.Weight | None) -> Shape:
    """The shape that a declared weight, or the value of a fact, says."""
    if weight is None:
        return ()
    sizes = _sizes(weight.value) if weight.shape is None else weight.shape
    rows, columns = (*sizes, 1, 1)[:2]
    return next(iter(matrix(rows, columns)))


def _sizes(value: nodes.Literal | nodes.Opaque | None) -> tuple[int, ...]:
    match value:
        case nodes.Opaque(thing):
            return tuple(thing.shape)
        case (tuple() as row, *_) as rows:
            return (len(rows), len(row))
        case tuple() as numbers:
            return (len(numbers),)
    return ()
