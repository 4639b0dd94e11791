"""The plan: rules in normal form, attention fused, in the order of their relations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from edgewise.language import nodes
from edgewise.language.program import Domain


@dataclass(frozen=True)
class Form:
    """A score that is not a dot product: the bent sum of a query and a key.

    "additive": f(q + k), numbers; "of sums": vector · f(q + k). f(z) = max(z, 0) + slope·min(z, 0).
    """

    kind: str
    slope: float
    vector: nodes.Weight | None = None


@dataclass(frozen=True)
class Attention:
    """A softmax-weighted sum along pairs: `head(I) = Σ_J softmax_J(score(I, J)) · value(J)`.

    The score is `code(factors · Σ_t scales[t] · queries[t](I)ᵀ keys[t](J)) + Σ biases`, or what its
    `form` makes of the sums of all queries and of all keys. A query holds only
    the query's variable and the shared ones, a key only the key's and the shared ones. `pattern`
    restricts the pairs. `instead` are the rules this replaces, for layouts without such a kernel.
    """

    head: nodes.Atom
    queries: tuple[nodes.Expression, ...]
    keys: tuple[nodes.Expression, ...]
    scales: tuple[tuple[nodes.Expression, ...], ...]
    biases: tuple[tuple[nodes.Expression, ...], ...]
    value: nodes.Expression
    shared: tuple[str, ...]
    query: str
    key: str
    pattern: nodes.PatternAtom | None
    dropout: float
    instead: tuple[nodes.Rule, nodes.Rule]
    edges: tuple[nodes.Atom, ...] = ()  # hidden relations that list the pairs
    form: Form | None = None
    code: nodes.Expression | None = None  # of `plan.code.DOT`: the score before biases
    factors: tuple[nodes.Expression, ...] = ()  # numbers of a pair, times its dot products
    numbers: tuple[nodes.Expression, ...] = ()  # factors in queries and keys that are scalars
    distances: tuple[nodes.Expression, ...] = ()  # compute variables of the code from I − J
    rows: tuple[nodes.Atom, ...] = ()  # hidden relations that hold for every query, or key


Step = nodes.Rule | Attention


@dataclass(frozen=True)
class Plan:
    """What is computed for one output relation."""

    output: nodes.Atom
    steps: tuple[Step, ...]
    facts: tuple[nodes.Fact, ...]
    lines: tuple[nodes.Line, ...]
    aggregation: nodes.Function
    domains: tuple[tuple[str, Domain], ...]
    rounds: int | None
    notes: tuple[str, ...] = ()

    @cached_property
    def rules(self) -> tuple[nodes.Rule, ...]:
        """All rules, those behind fused steps included."""
        found: list[nodes.Rule] = []
        for step in self.steps:
            found += [step] if isinstance(step, nodes.Rule) else step.instead
        return tuple(found)
