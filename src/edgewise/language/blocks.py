"""Composition: scopes, blocks that are repeated, and programs put together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgewise.errors import EdgewiseError, caller, safe_repr
from edgewise.language import nodes
from edgewise.language.statements import MAX_NESTED, flatten, mapped, substitute

if TYPE_CHECKING:
    from edgewise.language.program import RuleLike

ACTIVE: ContextVar[frozenset[str]] = ContextVar(
    "parameters of the blocks being built", default=frozenset()
)


MAX_COPIES = 10_000


class BadBlock(EdgewiseError):
    """A block is a function from relations to rules, so that it can be stacked."""

    code = "bad-block"
    example = "repeat(lambda x: [R.h(V.I) <= x(V.I)], 2)(R.x, R.y)"
    instead = "repeat(lambda x: [R.h(V.I) <= x(V.I)], 2)(R.x)"


class scope:
    """Prefix the relations that statements define, and their weights: `q` becomes `name.q`.

    >>> from edgewise.language import R, V, scope
    >>> scope("layer3")([R.q(V.I) <= R.x(V.I)[64, 64]])
    [R["layer3.q"](V.I) <= R.x(V.I)[64, 64]]
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not all(
            part.isidentifier() or part.isdigit() for part in name.split(".")
        ):
            raise BadBlock(
                f"`{safe_repr(name)}` is not a name for a scope", caller(), 'write `scope("layer")`'
            )
        self.name = name

    def __call__(self, items: RuleLike) -> list[nodes.Statement]:
        """The statements with their relations and weights prefixed."""
        statements = flatten([items])
        return list(_scoped(self.name, statements, defined(statements), {}))

    def __repr__(self) -> str:
        return f"scope({self.name!r})"


def repeat(
    block: Callable[..., RuleLike | tuple[RuleLike, Sequence[nodes.Atom]]],
    count: int,
    *,
    name: str = "layer",
) -> Callable[..., nodes.Stack]:
    """Stack a block: `repeat(block, 12)(R.x)` gives each copy the output of the one before it.

    The output of a block is the head of its last rule; a block that carries several relations
    returns `(rules, (R.a, R.b))` to name its outputs. The output of the stack is `name.output`,
    in Python `repeat(...)(...).out`.

    >>> from edgewise.language import R, V, F
    >>> repeat(lambda x: [(R.h(V.I) <= x(V.I)[8, 8]) | [F.relu]], 3)(R.x).out
    R["layer.h"]
    """
    place = caller()
    if not callable(block) or not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise BadBlock(
            f"cannot repeat `{safe_repr(block)}` `{safe_repr(count)}` times",
            place,
            "write `repeat(block, 12)(R.x)`, with a function from relations to rules",
        )
    try:
        parameters = tuple(inspect.signature(block).parameters)
    except ValueError:
        parameters = ()  # a builtin that does not say

    def stacked(*inputs: nodes.Atom) -> nodes.Stack:
        if len(inputs) != len(parameters) or not all(isinstance(a, nodes.Atom) for a in inputs):
            raise BadBlock(
                f"the block takes {', '.join(parameters) or 'nothing'}, got {len(inputs)} inputs",
                caller(),
                f"give one relation for each of {', '.join(parameters)}",
            )
        outer = ACTIVE.get()
        if clash := sorted(outer & set(parameters)):
            raise BadBlock(
                f"the parameter `{clash[0]}` of a block is also one of the block around it",
                place,
                "give the inner block's parameter another name",
            )
        token = ACTIVE.set(outer | set(parameters))
        try:
            made: Any = block(*(nodes.Atom(f"^{p}", place=place) for p in parameters))
        finally:
            ACTIVE.reset(token)
        named = isinstance(made, tuple) and len(made) == 2 and not isinstance(made[1], nodes.Rule)
        rules, outputs = made if named else (made, None)
        statements = flatten([rules])
        names = _outputs(statements, outputs, len(parameters), place)
        return nodes.Stack(
            name, count, parameters, tuple(a.relation for a in inputs), names, statements, place
        )

    return stacked


def _outputs(
    statements: tuple[nodes.Statement, ...], outputs: Any, expected: int, place: Any
) -> tuple[str, ...]:
    if outputs is None:
        heads = [s.head.relation for s in statements if isinstance(s, nodes.Rule)]
        names = tuple(heads[-1:])
    else:
        atoms = outputs if isinstance(outputs, tuple | list) else (outputs,)
        names = tuple(a.relation for a in atoms)
    unknown = [name for name in names if name not in defined(statements)]
    if len(names) != expected or unknown:
        raise BadBlock(
            f"the block gives {list(names)} for {expected} relations",
            place,
            "end the block with the rule of its output, or return `(rules, (R.a, R.b))`, "
            "one relation that it defines for each parameter",
        )
    return names


def defined(statements: Iterable[nodes.Statement]) -> set[str]:
    """The relations that statements derive, state or configure."""
    names = set()
    for statement in statements:
        match statement:
            case nodes.Rule(head=atom) | nodes.Fact(atom=atom):
                names.add(atom.relation)
            case nodes.Line(relation=relation):
                names.add(relation)
            case nodes.Stack(name=name, outputs=outputs):
                names |= {f"{name}.{output}" for output in outputs}
    return names


def expand(statements: Iterable[nodes.Statement]) -> tuple[nodes.Statement, ...]:
    """The statements with every stack written out, copy by copy."""
    flat: list[nodes.Statement] = []
    aliases: dict[str, str] = {}
    names: set[str] = set()
    for statement in statements:
        if isinstance(statement, nodes.Stack):
            _refuse_stack(statement, names)
            names.add(statement.name)
            copies, outputs = _copies(statement, aliases)
            flat += copies
            aliases |= outputs
        else:
            flat.append(statement)
    return tuple(rename(s, aliases, "") for s in flat) if aliases else tuple(flat)


def _refuse_stack(stack: nodes.Stack, names: set[str]) -> None:
    if stack.name in names:
        raise BadBlock(
            f"two stacks are named `{stack.name}`, so their relations and weights would be one",
            stack.place,
            'give them different names: `repeat(block, 2, name="decoder")`',
        )
    if stack.count > MAX_COPIES:
        raise BadBlock(
            f"a block is repeated more than {MAX_COPIES:,} times",
            stack.place,
            "repeat it less often; a recurrence is a recursive rule",
        )


def _copies(
    stack: nodes.Stack, aliases: Mapping[str, str]
) -> tuple[list[nodes.Statement], dict[str, str]]:
    carried = [aliases.get(name, name) for name in stack.inputs]
    body = expand(stack.statements)
    local = defined(body)
    inner = output_names(stack.statements)
    made: list[nodes.Statement] = []
    for i in range(stack.count):
        links = {f"^{p}": name for p, name in zip(stack.parameters, carried, strict=True)}
        made += _scoped(f"{stack.name}.{i}", body, local, links)
        carried = [f"{stack.name}.{i}.{inner.get(name, name)}" for name in stack.outputs]
    outputs = (f"{stack.name}.{name}" for name in stack.outputs)
    return made, dict(zip(outputs, carried, strict=True))


def output_names(statements: Iterable[nodes.Statement]) -> dict[str, str]:
    """What `stack.output` stands for: the relation of the last copy."""
    names: dict[str, str] = {}
    for statement in statements:
        if isinstance(statement, nodes.Stack):
            names |= _copies(statement, names)[1]
    return names


def _scoped(
    name: str, statements: Iterable[nodes.Statement], local: set[str], links: Mapping[str, str]
) -> list[nodes.Statement]:
    relations = {relation: f"{name}.{relation}" for relation in local} | dict(links)
    return [rename(statement, relations, f"{name}.") for statement in statements]


def rename(node: Any, relations: Mapping[str, str], prefix: str) -> Any:
    """The same node with relations renamed, and `prefix` before the name of every weight."""

    def go(item: Any) -> Any:
        return rename(item, relations, prefix)

    match node:
        case nodes.Weight(name=str()):
            return replace(node, name=prefix + str(node.name))
        case nodes.Atom() | nodes.Line():
            node = replace(node, relation=relations.get(node.relation, node.relation))
        case nodes.Stack():
            # a stack keeps its inside; its name and what it reads move with the scope
            inputs = tuple(relations.get(i, i) for i in node.inputs)
            inside = {k: v for k, v in relations.items() if k not in defined(node.statements)}
            return replace(
                node,
                name=prefix + node.name,
                inputs=inputs,
                statements=tuple(rename(s, inside, "") for s in node.statements),
            )
    return mapped(node, go)


def merged(
    items: Iterable[Any], domains: Mapping[str, Any], depth: int = 0
) -> tuple[list[Any], dict[str, Any]]:
    """The items of a program with the domains of programs among them, renamed apart: 8 heads and 1
    head stack.

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
            found += [with_variables(s, names) for s in item.statements] if names else [item]
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


def with_variables(node: Any, names: Mapping[str, str]) -> Any:
    """A statement with variables renamed, in its terms and in `agg_terms`."""
    match node:
        case nodes.Stack():
            return mapped(node, lambda inside: tuple(with_variables(s, names) for s in inside))
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
