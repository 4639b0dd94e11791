"""The attention heads of a program: the rules of each layer that has some, and their variable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgewise.errors import caller
from edgewise.language import nodes
from edgewise.language.defaults import Domain, members
from edgewise.language.program import Program
from edgewise.language.statements import aggregation_of, atoms, name_weights, weights
from edgewise.language.terms import variables
from edgewise.plan.score import is_softmax
from edgewise.pruning.errors import NoAttention

Statements = Sequence[nodes.Statement]


@dataclass(frozen=True)
class HeadLayer:
    """One attention: `score` derives its weights, `total` the sum that they weigh.

    `variable` numbers the keys and values in `score`, `numbers` are its values; `each` queries
    share them. `values` are the families of weights that values are made of, and the axis of each.
    """

    score: nodes.Rule
    total: nodes.Rule
    variable: str
    numbers: tuple[nodes.Constant, ...]
    each: int
    values: tuple[tuple[str, int], ...]

    @property
    def relation(self) -> str:
        return self.total.head.relation

    @property
    def scope(self) -> str:
        """What the relations of its layer begin with."""
        return self.relation.rpartition(".")[0]

    @property
    def heads(self) -> int:
        return len(self.numbers) * self.each


def head_layers(program: Program) -> list[HeadLayer]:
    """The attentions of a program whose heads a variable with a domain numbers, in order.

    >>> from edgewise.zoo import gpt2
    >>> [layer.heads for layer in head_layers(gpt2.program(gpt2.Config(layers=2)))]
    [12, 12]
    """
    statements = name_weights(program)
    rules = [s for s in statements if isinstance(s, nodes.Rule)]
    domains = dict(program.domains)
    scores = [rule for rule in rules if is_softmax(rule, program.aggregation)]
    found = [_layer(score, rules, domains, program.aggregation) for score in scores]
    return [layer for layer in found if layer is not None]


def checked_layers(program: Program) -> list[HeadLayer]:
    """The attentions of a program, which has some."""
    found = head_layers(program)
    if not found:
        raise NoAttention(
            "no softmax over keys has heads that a variable with a domain numbers",
            caller(),
            "write heads as a variable: `R.q(V.H, V.I) <= R.x(V.I)[W.q(V.H)[16, 64]]`, "
            "`domains={V.H: 4}`",
        )
    return found


def _layer(
    score: nodes.Rule,
    rules: Sequence[nodes.Rule],
    domains: Mapping[str, Domain],
    default: nodes.Function,
) -> HeadLayer | None:
    over = aggregation_of(score, default)["agg_terms"]
    names = [t.name if isinstance(t, nodes.Variable) else None for t in score.head.terms]
    readers = [rule for rule in rules if _reads(rule, score.head.relation)]
    if len(over) != 1 or over[0] not in names or len(readers) != 1:
        return None
    (total,) = readers
    (weight,) = _reads(total, score.head.relation)[:1]
    moved = dict(zip(names, (getattr(t, "name", None) for t in weight.terms), strict=True))
    values = [a for a in atoms(total.body) if isinstance(a, nodes.Atom) and a is not weight]
    held = {v.name for a in values for v in variables(a.terms)} - {moved[over[0]]}
    shared = [name for name in names if name in domains and moved[name] in held]
    if len(shared) != 1 or shared[0] is None:
        return None
    variable = shared[0]
    queries = [n for n in names if n is not None and n in domains and n not in (variable, over[0])]
    last = next(n for n in reversed(names) if n != over[0])  # the query's
    each = math.prod(len(members(domains[n])) for n in queries if n != last)
    own = _value_weights(values, str(moved[variable]), rules)
    return HeadLayer(score, total, variable, tuple(members(domains[variable])), each, own)


def _reads(rule: nodes.Rule, relation: str) -> list[nodes.Atom]:
    found = (a for a in atoms(rule.body) if isinstance(a, nodes.Atom))
    return [atom for atom in found if atom.relation == relation]


def _value_weights(
    values: Sequence[nodes.Atom], variable: str, rules: Sequence[nodes.Rule]
) -> tuple[tuple[str, int], ...]:
    """The weights of which values are linear maps, one for each head; none where they are not."""
    if len(values) != 1 or nodes.Variable(variable) not in values[0].terms:
        return ()
    position = values[0].terms.index(nodes.Variable(variable))
    own = [rule for rule in rules if rule.head.relation == values[0].relation]
    if len(own) != 1 or own[0].functions or own[0].head.weight is not None:
        return ()
    term = own[0].head.terms[position]
    found = []
    for item in own[0].body:
        if not item.carries_value:
            continue
        mine = [w for w in weights(item) if term in w.keys]
        plain = isinstance(item, nodes.Atom | nodes.Weight)
        if not plain or len(mine) != 1 or mine[0].name is None:
            return ()
        found.append((mine[0].name, mine[0].keys.index(term)))
    return tuple(found)
