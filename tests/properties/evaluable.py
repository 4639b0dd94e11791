"""Random programs with data that solve: the fuzzer of everything that evaluates.

`evaluable()` draws cases that cover the language: joins, hidden and negated atoms, arithmetic,
patterns, weights and families, every combination, transformation and aggregation, lines, and
recursion over sequences, acyclic graphs, shortest paths, reachability and rounds.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from edgewise import F, Program, R, V, W, repeat
from edgewise.graphs import window
from edgewise.language import nodes
from edgewise.language.statements import atoms, weights
from edgewise.reference import Solution
from tests.properties.evaluable_conditions import Choices, Relation
from tests.properties.evaluable_rules import SMALL, Rules


class Case(NamedTuple):
    """A program, facts to solve it with, and an atom with variables for each derived relation."""

    program: Program
    facts: list[nodes.Atom]
    queries: list[nodes.Atom]


INPUTS = (
    Relation("a", (), (True,), is_input=True),
    Relation("b", (), (True,), is_input=True),
    Relation("x", (2,), (True,), is_input=True),
    Relation("y", (3,), (True,), is_input=True),
    Relation("m", (2, 3), (True,), is_input=True),
    Relation("r", (1, 2), (True,), is_input=True),
    Relation("e", (), (True, True), is_input=True),
    Relation("f", (2,), (True, True), is_input=True),
    Relation("s", (), (), is_input=True),
    Relation("c", (), (False,), is_input=True),  # strings among its keys
    Relation("d", (), (False,), is_input=True),  # negative and large keys
    Relation("n", (), (True,), is_input=True),  # no value: 1
)
KEYS = {"c": [("a",), ("b",), (0,), (2,)], "d": [(-2,), (0,), (3,), (9,)], "s": [()]}


def keys(relation: Relation) -> list[tuple[Any, ...]]:
    """The keys that facts of a relation may have."""
    if relation.name in KEYS:
        return KEYS[relation.name]
    if len(relation.small) == 1:
        return [(i,) for i in range(4)]
    return [(i, j) for i in range(4) for j in range(4)]


def literal(shape: tuple[int, ...], random: Random) -> Any:
    if not shape:
        return random.choice([-1, 1]) * random.randint(50, 2000) / 1000
    return [literal(shape[1:], random) for _ in range(shape[0])]


def facts_of(choices: Choices, relations: Sequence[Relation]) -> list[nodes.Atom]:
    """Facts for the relations, from none to all of their keys, in any order."""
    random = Random(choices.randint(0, 999))
    found = []
    for relation in relations:
        density = choices.choice([0.7, 1.0, 0.9, 1.0, 0.4, 0.0])
        length = choices.choice([4, 4, 4, 4, 3, 1])  # of an axis that is given as a tensor
        short = all(relation.small) and length < 4
        for key in keys(relation):
            if random.random() < density and not (short and max(key, default=0) >= length):
                atom = R[relation.name](*key)
                found.append(
                    atom if relation.name == "n" else atom[literal(relation.shape, random)]
                )
    random.shuffle(found)
    return found


def sequence(name: str) -> tuple[list[Any], Relation]:
    """A recurrent network over the keys of x."""
    rules = [
        (R[name](V.T) <= R.x(V.T)[W_IN]) | [F.tanh],
        (R[name](V.T) <= (R._x(V.T), R[name](V.S)[0.5], R.special.next(V.S, V.T))) | [F.tanh],
    ]
    return rules, Relation(name, (2,), (True,))


W_IN = [[0.5, -1.0], [0.25, 0.75]]


def paths(name: str) -> tuple[list[Any], Relation]:
    """Sums over the paths of an acyclic graph: the edges that go up."""
    rules = [
        R[name](V.X) <= R.a(V.X),
        (R[name](V.Y) <= (R[name](V.X)[0.5], R.e(V.X, V.Y), R.special.lt(V.X, V.Y))) | [F.product],
    ]
    return rules, Relation(name, (), (True,))


def shortest(name: str) -> tuple[list[Any], Relation]:
    """Shortest paths on a graph with cycles, to the fixed point."""
    rules = [
        (R[name](V.X, V.Y) <= F.abs(R.e(V.X, V.Y))) | [F.min_agg],
        (R[name](V.X, V.Y) <= (R[name](V.X, V.Z), F.abs(R.e(V.Z, V.Y)))) | [F.min_agg],
        R[name] / 2 | [F.min],
    ]
    return rules, Relation(name, (), (True, True))


def reachable(name: str) -> tuple[list[Any], Relation]:
    """Reachability, through conditions alone."""
    rules = [
        R[name](V.X, V.Y) <= R._e(V.X, V.Y),
        R[name](V.X, V.Y) <= (R.hidden[name](V.X, V.Z), R._e(V.Z, V.Y)),
    ]
    return rules, Relation(name, (), (True, True))


def passed(name: str) -> tuple[list[Any], Relation]:
    """Messages around cycles, for as many rounds as the program says."""
    rules = [
        R[name](V.X) <= R.x(V.X),
        (R[name](V.Y) <= (R[name](V.X)[0.25], R._e(V.X, V.Y))) | [F.avg_agg],
        R[name] / 1 | [F.tanh],
    ]
    return rules, Relation(name, (2,), (True,))


def autoregressive(name: str) -> tuple[list[Any], Relation]:
    """Attention to earlier results; a softmax group is one unit of the recursion."""
    weights = R[f"{name}_w"]
    rules = [
        R[name](V.I) <= R.x(V.I),
        (weights(V.I, V.J) <= (R[name](V.J).T @ R.x(V.I), R.special.lt(V.J, V.I)))
        | [F.softmax_agg(agg_terms=[V.J])],
        (R[name](V.I) <= (weights(V.I, V.J), R[name](V.J))) | [F.product],
    ]
    return rules, Relation(name, (2,), (True,))


def stacked(name: str) -> tuple[list[Any], Relation]:
    """Two layers of message passing."""

    def layer(z: nodes.Atom) -> list[nodes.Rule]:
        rule = R.out(V.I) <= (z(V.I)["own":2, 2], z(V.J)[2, 2], R._e(V.J, V.I))
        return [rule | [F.tanh, F.avg_agg]]

    return [repeat(layer, 2, name=name)(R.x)], Relation(f"{name}.out", (2,), (True,))


def attended(name: str) -> tuple[list[Any], Relation]:
    """Attention of two heads, each with projections of its own, along a window."""
    rules = [
        R[f"{name}_q"](V.H, V.I) <= R.x(V.I)[W[f"{name}_q"](V.H)[2, 2]],
        R[f"{name}_k"](V.H, V.J) <= R.x(V.J)[W[f"{name}_k"](V.H)[2, 2]],
        (
            R[f"{name}_w"](V.H, V.I, V.J)
            <= (R[f"{name}_k"](V.H, V.J).T, R[f"{name}_q"](V.H, V.I), window(2)(V.I, V.J))
        )
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R[name](V.I) <= (R[f"{name}_w"](V.H, V.I, V.J), R.x(V.J)[2, 2])) | [F.product],
    ]
    return rules, Relation(name, (2,), (True,))


def causally(name: str) -> tuple[list[Any], Relation]:
    """Attention to earlier places, and what is done to its result place by place."""
    rules = [
        (R[f"{name}_w"](V.I, V.J) <= (R.x(V.J).T, R.x(V.I)[2, 2], R.special.leq(V.J, V.I)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R[f"{name}_v"](V.I) <= (R[f"{name}_w"](V.I, V.J), R.x(V.J)[3, 2])) | [F.product],
        (R[name](V.I) <= (R[f"{name}_v"](V.I)[2, 3], R.x(V.I), W[f"{name}_b"][2,]))
        | [F.norm(eps=0.1), F.gelu],
    ]
    return rules, Relation(name, (2,), (True,))


def crossed(name: str) -> tuple[list[Any], Relation]:
    """Attention whose queries, keys, values and biases are relations of their own."""
    rules = [
        (R[f"{name}_w"](V.I, V.J) <= (R.y(V.J).T @ R.x(V.I)[3, 2]) + R.e(V.I, V.J))
        | [F.softmax_agg(agg_terms=[V.J])],
        (R[name](V.I) <= (R[f"{name}_w"](V.I, V.J), R.a(V.J), R.x(V.J))) | [F.product],
    ]
    return rules, Relation(name, (2,), (True,))


def typed(name: str) -> tuple[list[Any], Relation]:
    """Messages along edges, with a matrix for the kind of the sender."""
    rules = [
        (R[name](V.Y) <= (R.x(V.X)[W[f"{name}_m"](V.X)[2, 2]], R._e(V.X, V.Y)))
        | [F.relu, F.avg_agg],
        R[name](V.Y) <= R.x(V.Y)[2, 2],
        R[name] / 1 | [F.tanh],
    ]
    return rules, Relation(name, (2,), (True,))


def unbound(name: str) -> tuple[list[Any], Relation]:
    """Rules whose bodies hold no relation, beside one that does."""
    rules = [
        (R[name](V.H) <= (W[f"{name}_p"](V.H)[2,], R.special.add_eval(1, 2))) | [F.avg, F.tanh],
        (R[name](0) <= (W[f"{name}_r"][2,], R.special.lt(1, 2))) | [F.product],
        (R[name](V.X) <= (R.x(V.X), R.a(V.Y))) | [F.product, F.max_agg],
    ]
    return rules, Relation(name, (2,), (False,))


def several(name: str) -> tuple[list[Any], Relation]:
    """Three ways to one atom, over relations that may be empty."""
    rules = [
        (R[name] <= (R.a(V.X), R.b(V.X))) | [F.avg],
        (R[name] <= (R.e(V.X, V.Y), R.a(V.Y), ~R.n(V.X))) | [F.product],
        (R[name] <= R.e(V.X, V.Y)[0.5]) | [F.max_agg],
    ]
    return rules, Relation(name, (), ())


def topped(name: str) -> tuple[list[Any], Relation]:
    """The largest of facts of the program and of what is derived for the same atoms."""
    rules = [
        R[name](0)[[0.5, -0.75]],
        R[name](2)[[0.25, 1.5]].fixed(),
        (R[name](V.X) <= (R.x(V.X), -R.a(V.Y))) | [F.min_agg],
        R[name] / 1 | [F.max, F.tanh],
    ]
    return rules, Relation(name, (2,), (True,))


PLAIN = (shortest, reachable, passed, stacked, several, topped)
TEMPLATES = (*PLAIN, sequence, paths, autoregressive, attended, causally, crossed, typed, unbound)
LEARNABLE = (R.g(0)[2,], R.g(1)[[0.5, -0.25]], R.g(3)[[1.5, 0.75]].fixed())
LINES = ([F.sum], [F.max], [F.avg, F.tanh], [F.elproduct], [F.relu], [F.min, F.sigmoid])


class Drawn:
    """The choices that hypothesis makes."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw

    def choice(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def randint(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))


@st.composite
def evaluable(draw: Any, *, most_rules: int = 5, arithmetic: bool = True) -> Case:
    return case_of(Drawn(draw), most_rules=most_rules, arithmetic=arithmetic)


def case_of(choices: Choices, *, most_rules: int = 5, arithmetic: bool = True) -> Case:
    """A well-typed program with small data; nearly all of them solve.

    Without `arithmetic` nothing depends on which integers the keys are, only on their order.
    """
    relations = [*INPUTS, Relation("g", (2,), (True,))]
    rules = Rules(choices, relations, arithmetic)
    statements: list[Any] = list(LEARNABLE)
    for at in range(choices.randint(1, most_rules)):
        name = f"h{at}"
        if rules.chance(2):
            made, relation = rules.pick(TEMPLATES if arithmetic else PLAIN)(name)
        else:
            made, relation = derived(rules, name)
        statements += made
        relations.append(relation)
    aggregation = rules.pick([None, None, F.avg_agg, F.max_agg])
    domains = {V.H: rules.pick([2, ["p", "q"]])} | {V[v]: SMALL for v in "XYZ"}
    program = Program(
        statements,
        aggregation=aggregation,
        domains=domains if any(w.keys for s in statements for w in weights(s)) else None,
        rounds=rules.pick([1, 2, 3]),
    )
    queries = [
        R[r.name](*[V[f"A{i}"] for i in range(len(r.small))]) for r in relations[len(INPUTS) + 1 :]
    ]
    read = {atom.relation for atom in atoms(program.rules) if isinstance(atom, nodes.Atom)}
    return Case(program, facts_of(choices, [r for r in INPUTS if r.name in read]), queries)


def derived(rules: Rules, name: str) -> tuple[list[Any], Relation]:
    """One to three rules for a relation, and perhaps its line."""
    arity = rules.pick([0, 1, 1, 1, 2])
    several = rules.pick([1, 1, 2, 3])
    target = None if several == 1 else rules.pick([(), (2,)])
    made, small = [], [True] * arity
    shape: tuple[int, ...] | None = None
    for _ in range(several):
        rule, shape = rules.rule(name, arity, target)
        made.append(rule)
        for at, term in enumerate(rule.head.terms):
            known = rules.bound[term.name] if isinstance(term, nodes.Variable) else True
            small[at] = small[at] and known
    if shape is not None and rules.chance(3):
        made.append(R[name] / arity | rules.pick(LINES))
    return made, Relation(name, shape, tuple(small))


def answers(solution: Solution, queries: Sequence[nodes.Atom]) -> dict[nodes.Atom, Tensor]:
    """Every atom that answers a query, with its value; a query without terms may have none."""
    found: dict[nodes.Atom, Tensor] = {}
    for query in queries:
        if query.terms:
            found |= solution[query]
        elif query in solution:
            found[query] = solution[query]
    return found


def with_gradients(facts: Sequence[nodes.Atom]) -> tuple[list[nodes.Atom], list[Tensor]]:
    """The same facts with values that require gradients, and those values."""
    leaves, made = [], []
    for atom in facts:
        if atom.weight is not None:
            leaf = torch.tensor(atom.weight.value, dtype=torch.float64, requires_grad=True)
            leaves.append(leaf)
            atom = nodes.Atom(atom.relation, atom.terms)[leaf]
        made.append(atom)
    return made, leaves
