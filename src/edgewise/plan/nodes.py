"""The plan: rules in normal form, attention fused, in the order of their relations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from edgewise.language import nodes
from edgewise.language.defaults import Domain
from edgewise.plan.mask import Mask, map_conditions
from edgewise.plan.relational import RelationalAttention, rewrite_relational
from edgewise.scores.nodes import Node


@dataclass(frozen=True)
class Dot:
    """A dot product: scale · pair(I, J) · query(I)ᵀ key(J)."""

    query: nodes.Expression
    key: nodes.Expression
    scale: tuple[nodes.Expression, ...]
    pair: tuple[nodes.Expression, ...] = ()  # numbers of the pair itself
    numbers: tuple[nodes.Expression, ...] = ()  # those that query and key are multiplied with


@dataclass(frozen=True)
class Additive:
    """Additive attention: vectorᵀ f(Σ queries + Σ keys), f(z) = max(z, 0) + slope · min(z, 0).

    Without a vector the sum is a number.
    """

    queries: tuple[nodes.Expression, ...]
    keys: tuple[nodes.Expression, ...]
    slope: float
    vector: nodes.Weight | None = None


@dataclass(frozen=True)
class LoweredScore:
    """A score as the tree that kernels compile, and what data gives it.

    S is the sum of all dot products, or the additive form. `Entry(n, ...)` is `reads[n]`
    for each head, at index `I - J` for each distance; `PairValue(n)` is `reads[n]` for each pair.
    `where` computes the variables of reads from I − J.
    """

    tree: Node
    products: tuple[Dot, ...] | Additive
    reads: tuple[nodes.Expression, ...] = ()
    where: tuple[nodes.Expression, ...] = ()

    @property
    def dots(self) -> tuple[Dot, ...]:
        return () if isinstance(self.products, Additive) else self.products

    @property
    def queries(self) -> tuple[nodes.Expression, ...]:
        found = self.products
        return found.queries if isinstance(found, Additive) else tuple(d.query for d in found)

    @property
    def keys(self) -> tuple[nodes.Expression, ...]:
        found = self.products
        return found.keys if isinstance(found, Additive) else tuple(d.key for d in found)


@dataclass(frozen=True)
class AttendedPairs:
    """Which keys a query attends to: those of a pattern, of every relation, and of the mask."""

    pattern: nodes.PatternAtom | None = None
    listed: tuple[nodes.Atom, ...] = ()  # hidden relations that list pairs
    rows: tuple[nodes.Atom, ...] = ()  # hidden relations that hold for every query, or key
    heads: tuple[nodes.Atom, ...] = ()  # hidden relations that say which heads there are
    mask: Mask | None = None  # in place of both where conditions are more than those
    unfolded: frozenset[str] = frozenset()  # relations that the mask replaces by their rules
    without_facts: frozenset[str] = frozenset()  # those of which the mask reads the rules alone
    with_facts: AttendedPairs | None = None  # for data that has facts of these


@dataclass(frozen=True)
class Attention:
    """A softmax-weighted sum along pairs: `head(I) = Σ_J softmax_J(score(I, J)) · value(J)`.

    Queries hold only the query's variable and the shared ones, keys only the key's and the shared
    ones. `replaces` are the rules this stands for, run for layouts without such a kernel.
    """

    head: nodes.Atom
    query: str
    key: str
    shared: tuple[str, ...]
    score: LoweredScore
    value: nodes.Expression
    pairs: AttendedPairs
    dropout: float
    replaces: tuple[nodes.Rule, nodes.Rule]


def rewrite(node: Fused, rewritten: Callable[[Any], Any]) -> Fused:
    """The node with every expression and every tuple of them rewritten, its pattern excepted."""
    if isinstance(node, RelationalAttention):
        return rewrite_relational(node, rewritten)
    score = node.score
    products = (
        _rewrite(score.products, rewritten)
        if isinstance(score.products, Additive)
        else tuple(_rewrite(dot, rewritten) for dot in score.products)
    )
    return replace(
        node,
        head=rewritten(node.head),
        value=rewritten(node.value),
        score=LoweredScore(score.tree, products, rewritten(score.reads), rewritten(score.where)),
        pairs=_rewritten_pairs(node.pairs, rewritten),
    )


def _rewritten_pairs(pairs: AttendedPairs, rewritten: Callable[[Any], Any]) -> AttendedPairs:
    mask = None if pairs.mask is None else map_conditions(pairs.mask, rewritten)
    listed, rows, heads = (rewritten(a) for a in (pairs.listed, pairs.rows, pairs.heads))
    return replace(pairs, listed=listed, rows=rows, heads=heads, mask=mask)


def _rewrite(product: Any, rewritten: Callable[[Any], Any]) -> Any:
    return type(product)(**{name: rewritten(part) for name, part in vars(product).items()})


Fused = Attention | RelationalAttention
Step = nodes.Rule | Fused


@dataclass(frozen=True)
class Plan:
    """What is computed for some outputs: atoms whose constants, if any, choose among their rows.

    `names` are those of several outputs, which a model returns by name; empty for one alone.
    """

    outputs: tuple[nodes.Atom, ...]
    steps: tuple[Step, ...]
    facts: tuple[nodes.Fact, ...]
    lines: tuple[nodes.Line, ...]
    aggregation: nodes.Function
    domains: tuple[tuple[str, Domain], ...]
    rounds: int | None
    unfused: tuple[tuple[str, str], ...] = ()  # attention that data takes apart, and why
    names: tuple[str, ...] = ()
    pushed: frozenset[tuple[str, str]] = frozenset()  # relation, condition that a pass added

    @cached_property
    def wanted(self) -> frozenset[str]:
        """The relations of the outputs."""
        return frozenset(output.relation for output in self.outputs)

    @property
    def has_all_rows(self) -> bool:
        """Whether the outputs are relations, all of each: no constant, no variable twice."""
        return all(
            len({t for t in output.terms if isinstance(t, nodes.Variable)}) == len(output.terms)
            for output in self.outputs
        )

    @property
    def is_one_relation(self) -> bool:
        """Whether the output is one relation, all of it."""
        return not self.names and self.has_all_rows

    @cached_property
    def rules(self) -> tuple[nodes.Rule, ...]:
        """All rules, those behind fused steps included."""
        found: list[nodes.Rule] = []
        for step in self.steps:
            found += [step] if isinstance(step, nodes.Rule) else step.replaces
        return tuple(found)

    @cached_property
    def stated_rules(self) -> tuple[nodes.Rule, ...]:
        """All rules without conditions that a pass added: what is dense does not depend on it."""
        if not self.pushed:
            return self.rules
        return tuple(
            replace(rule, body=tuple(i for i in rule.body if not self._is_pushed(rule, i)))
            for rule in self.rules
        )

    def _is_pushed(self, rule: nodes.Rule, item: nodes.Expression) -> bool:
        if not isinstance(item, nodes.Atom) or not item.hidden:
            return False
        return (rule.head.relation, item.relation) in self.pushed
