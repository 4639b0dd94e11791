"""What reaches what: never less than gradients show, and as tight as windows and walks allow."""

import itertools
import math
import random
import warnings

import pytest
import torch

from edgewise import EdgewiseError, EdgewiseWarning, F, Program, R, V, zoo
from edgewise.flow.bodies import intervals
from edgewise.flow.conditions import ZERO
from edgewise.flow.reach import between
from edgewise.graphs import causal, full, global_tokens, strided, window
from edgewise.language import nodes
from edgewise.language.statements import arities_of, atoms
from edgewise.reference.arithmetic import holds
from tests.properties.modes import trial_of

SOFTMAX = F.softmax_agg(agg_terms=[V.J])


def layers(count, *conditions, skip=False):
    """Attention layers under conditions between I and J."""
    rules, x = [], R.x
    for n in range(count):
        w, h = R[f"w{n}"], R[f"h{n}"]
        rules += [
            (w(V.I, V.J) <= (x(V.J).T, x(V.I), *conditions)) | [F.product, SOFTMAX],
            (h(V.I) <= (w(V.I, V.J), x(V.J))) | [F.product],
            *([h(V.I) <= x(V.I)] if skip else []),
        ]
        x = h
    return Program([*rules, R.out(V.I) <= x(V.I)])


def pattern_of(program):
    return program.reaches(R.out(V.I), R.x(V.J)).pattern


NEAR = (R.special.sub(V.I, V.J, V.D), R.special.leq(V.D, 2))


@pytest.mark.parametrize(
    ("program", "pattern"),
    [
        (layers(3, R.special.leq(V.J, V.I)), causal()),
        (layers(4, causal()(V.I, V.J), skip=True), causal()),
        (layers(3, window(2)(V.I, V.J)), window(6)),
        (layers(3, *NEAR), causal() & window(6)),
        (layers(2, (causal() & window(3))(V.I, V.J), skip=True), causal() & window(6)),
        (layers(2, abs(V.I - V.J) <= 4), window(8)),
        (layers(2), full()),
        (layers(1, strided(2)(V.I, V.J)), strided(2) | window(0)),
        (layers(2, global_tokens(1)(V.I, V.J)), None),
        (Program([R.h(V.I) <= (R.x(V.J), R.special.next(V.J, V.I)), R.out(V.I) <= R.h(V.I)]), None),
        (Program([R.out(V.I) <= (R.x(V.J), R._x(V.I), R.special.lt(V.J, V.I))]), None),
    ],
)
def test_layers_compose(program, pattern):
    found = program.reaches(R.out(V.I), R.x(V.J))
    if pattern is not None:
        for n in (1, 5, 12):
            assert torch.equal(found.pattern.edges(n), pattern.edges(n))
    assert found.exact


def test_hops_of_a_graph_network():
    rules, x = [], R.x
    for n in range(3):
        rules += [R[f"h{n}"](V.X) <= (x(V.Y), R._edge(V.X, V.Y)), R[f"h{n}"](V.X) <= x(V.X)]
        x = R[f"h{n}"]
    found = Program(rules).reaches(R.h2(V.I), R.x(V.J))
    assert found.hops("edge") == 3
    assert repr(found).splitlines()[1:] == [
        "  I = J",
        "  edge(I, J)",
        "  edge(I, A0), edge(A0, J)",
        "  edge(I, A0), edge(A0, A1), edge(A1, J)",
    ]


def test_what_another_atom_asks_for_is_said_once():
    """That a row of h is derived at all asks for an edge to a training node: that of the path."""
    layers = [
        R.h(V.I) <= (R.edge(V.I, V.J), R.x(V.J)),
        R.g(V.I) <= (R.edge(V.I, V.J), R.h(V.J), R._train(V.J)),
        R.out(V.I) <= R.g(V.I),
    ]
    found = str(Program(layers).reaches(R.out(V.I), R.x(V.J)))
    assert found.endswith("where edge(I, A0), train(A0), edge(A0, J)")
    apart = [R.out(V.I) <= (R.x(V.J), R._near(V.I, V.A), R._near(V.A, V.J), R._red(V.A, V.B),
                            R._near(V.I, V.C), R._near(V.C, V.J), R._red(V.C, 3))]  # fmt: skip
    found = str(Program(apart).reaches(R.out(V.I), R.x(V.J)))
    assert found.endswith("where near(I, A0), red(A0, 3), near(A0, J)")


def test_labels_of_test_rows_reach_no_training_row():
    rules = [
        R.h(V.X) <= (R.x(V.Y), R._edge(V.X, V.Y)),
        (R.loss(V.X) <= (R.h(V.X), R.label(V.X), R._train(V.X))) | [F.product],
    ]
    safe = Program(rules)
    assert not safe.reaches(R.h(V.I), R.label(V.J))
    assert repr(safe.reaches(R.loss(V.I), R.label(V.J))).endswith("where I = J, train(I)")
    leaky = Program([*rules, R.h(V.X) <= (R.label(V.Y), R._edge(V.X, V.Y))])
    assert leaky.reaches(R.loss(V.I), R.label(V.J))
    hidden = Program([*rules, R.h(V.X) <= (R.x(V.X), ~R.label(V.X))])
    assert hidden.reaches(R.h(V.I), R.label(V.J)), "which atoms hold is information too"


def test_recursion_says_at_most():
    rnn = Program([
        (R.h(V.T) <= (R.x(V.T), R.h(V.S), R.special.next(V.S, V.T))) | [F.tanh],
        R.out(V.T) <= R.h(V.T),
    ])  # fmt: skip
    found = rnn.reaches(R.out(V.T), R.x(V.J))
    assert not found.exact
    assert repr(found) == "R.x(V.J) reaches R.out(V.T) at most where J <= T"
    assert rnn.is_causal()
    paths = Program(
        [R.p(V.X, V.Y) <= R.e(V.X, V.Y), R.p(V.X, V.Z) <= (R.p(V.X, V.Y), R.e(V.Y, V.Z))]
    )
    assert paths.reaches(R.p(V.A, V.B), R.e(V.C, V.D))
    assert paths.reaches(R.p(V.A, V.B), R.e(V.C, V.D)).hops("e") is None


def test_constants_and_repeated_variables():
    program = layers(2, (causal() & window(2))(V.I, V.J))
    assert program.reaches(R.out(9), R.x(5))
    assert not program.reaches(R.out(9), R.x(4))
    assert not program.reaches(R.out(9), R.x(10))
    assert program.reaches(R.out(V.I), R.x(V.I))
    assert repr(program.reaches(R.out(9), R.x(V.J))).endswith("where 5 <= J <= 9")
    named = Program([R.h("a") <= R.x(V.J), R.h("b") <= R.x("c")])
    assert repr(named.reaches(R.h(V.I), R.x(V.J))).splitlines()[1:] == [
        "  I = 'a'",
        "  I = 'b', J = 'c'",
    ]


@pytest.mark.parametrize(
    ("name", "output", "is_causal"),
    [("gpt2", "logits", True), ("gpt", "logits", True), ("llama", "logits", True),
     ("bert", "tags", False)],
)  # fmt: skip
def test_models_of_the_zoo(name, output, is_causal):
    model = getattr(zoo, name)
    program = model.program(model.Config())
    assert program.is_causal(R[output](V.I), R.token(V.J)) is is_causal
    if is_causal:
        assert program.is_causal()


@pytest.mark.parametrize("query", [R.nobody(V.I), R.out(V.I, V.J), "out", ~R.out(V.I)])
def test_what_is_no_query(query):
    with pytest.raises(EdgewiseError):
        layers(1).reaches(query, R.x(V.J))
    with pytest.raises(EdgewiseError):
        layers(1).reaches(R.out(V.I), query)


def test_causality_needs_one_output_and_one_input():
    with pytest.raises(EdgewiseError, match="name one of each"):
        Program([R.h(V.I) <= (R.x(V.I), R.y(V.I))]).is_causal()


@pytest.mark.parametrize("low", [-math.inf, -3, -1, 0, 1, 2])
@pytest.mark.parametrize("high", [-2, 0, 1, 3, math.inf])
def test_bounds_are_patterns_and_back(low, high):
    if low > high:
        return
    pattern = between(low, high)
    pairs = {tuple(pair) for pair in pattern.edges(9).T.tolist()}
    assert pairs == {(i, j) for i in range(9) for j in range(9) if low <= i - j <= high}
    cases, exact = intervals(pattern)
    assert exact
    found = {i - j for i in range(9) for j in range(9) if any(a <= i - j <= b for a, b in cases)}
    assert found == {d for d in range(-8, 9) if low <= d <= high}


# against gradients


def met(path, bound, facts):
    """Whether a path may hold for these keys: literals over derived relations are taken as met."""
    hidden = sorted({t for x in path.literals for t in x.terms if t.startswith("?")})
    every = sorted({k for _, key in facts for k in key}, key=repr)
    for values in itertools.product(every, repeat=len(hidden)):
        known = bound | dict(zip(hidden, values, strict=True)) | {ZERO: 0}
        if all(_below(known, *one) for one in path.bounds) and all(
            _holds(x, known, facts) for x in path.literals
        ):
            return True
    return False


def _of(known, name):
    if name.startswith("="):
        return int(name[1:]) if name[1:].lstrip("-").isdigit() else name[2:-1]
    return known[name]


def _below(known, a, b, most):
    x, y = _of(known, a), _of(known, b)
    if isinstance(x, str) or isinstance(y, str):
        return x == y and most >= 0
    return x - y <= most


def _holds(literal, known, facts):
    terms = tuple(_of(known, t) for t in literal.terms)
    node = literal.node
    if isinstance(node, nodes.Atom) and any(relation == node.relation for relation, _ in facts):
        return ((node.relation, terms) in facts) != node.negated
    if isinstance(node, nodes.SpecialAtom) and node.function is None and node.formula is None:
        return holds(nodes.SpecialAtom(node.name, terms), terms) != node.negated
    return True


class NotEvaluated(Exception):
    """The reference refuses a program."""


def assert_covers_gradients(program, facts, output, seed):
    """Every fact with a gradient to an output atom reaches it."""
    leaves = {}
    stated = []
    for fact in facts:
        value = 1.0 if fact.weight is None else fact.weight.value
        thing = value.thing if isinstance(value, nodes.Opaque) else value
        leaf = torch.tensor(thing, dtype=torch.float64).requires_grad_()
        leaves[fact.relation, fact.terms] = leaf
        stated.append(nodes.Atom(fact.relation, fact.terms)[leaf])
    try:
        solution = program.solve(stated, seed=seed)
    except EdgewiseError as refused:
        raise NotEvaluated from refused
    arities = arities_of(program.rules, program.facts)
    derived = {rule.head.relation for rule in program.rules}
    sources = sorted({relation for relation, _ in leaves} & arities.keys() - derived)
    outputs = [V[f"I{p}"] for p in range(arities[output])]
    found = {
        r: program.reaches(R[output](*outputs) if outputs else R[output],
                           R[r](*(V[f"J{p}"] for p in range(arities[r]))) if arities[r] else R[r])
        for r in sources
    }  # fmt: skip
    checked = 0
    for atom, value in solution[R[output](*outputs)].items() if outputs else ():
        if not value.requires_grad:
            continue
        grads = torch.autograd.grad(
            value.sum(), list(leaves.values()), retain_graph=True, allow_unused=True
        )
        for (relation, key), grad in zip(leaves, grads, strict=True):
            if grad is None or relation not in found or not bool((grad != 0).any()):
                continue
            bound = {f"vI{p}": k for p, k in enumerate(atom.terms)}
            bound |= {f"vJ{p}": k for p, k in enumerate(key)}
            assert any(met(path, bound, leaves) for path in found[relation].paths), (
                atom,
                relation,
                key,
            )
            checked += 1
    return checked


@pytest.mark.parametrize("seed", range(40))
def test_gradients_of_random_programs_are_covered(seed):
    trial = trial_of(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgewiseWarning)
        try:
            assert_covers_gradients(trial.program, trial.facts, trial.output, seed)
        except NotEvaluated:
            pytest.skip("the reference refuses it")


@pytest.mark.parametrize("seed", range(4))
def test_gradients_of_layers_are_covered(seed):
    choices = random.Random(seed)
    conditions = [(window(1)(V.I, V.J),), NEAR, (R.special.leq(V.J, V.I),), (R._edge(V.I, V.J),)]
    program = layers(2, *choices.choice(conditions), skip=choices.random() < 0.5)
    facts = [R.x(i)[[choices.uniform(-1, 1), choices.uniform(-1, 1)]] for i in range(6)]
    if "edge" in {a.relation for r in program.rules for a in atoms(r) if isinstance(a, nodes.Atom)}:
        facts += [R.edge(i, (i + k) % 6) for i in range(6) for k in (1, 2)]
    assert assert_covers_gradients(program, facts, "out", seed) >= 6


@pytest.mark.parametrize(
    ("conditions", "shown"),
    [
        (
            (R._time(V.I, V.A), R._time(V.J, V.B), V.B <= V.A),
            "A1 <= A0, time(I, A0), time(J, A1)",
        ),
        (
            (R._span(V.A, V.B), V.A <= V.I, V.I < V.B, V.A <= V.J, V.J < V.B),
            "A0 <= I, A0 <= J, I + 1 <= A1, J + 1 <= A1, span(A0, A1)",
        ),
        ((R._level(V.I, V.A), V.A <= 3, V.J <= V.I), "J <= I"),  # that there is a level
    ],
)
def test_comparisons_of_data_link_keys(conditions, shown):
    program = Program([R.out(V.I) <= (R.x(V.J), *conditions)])
    reach = program.reaches(R.out(V.I), R.x(V.J))
    assert str(reach) == f"R.x(V.J) reaches R.out(V.I) where {shown}"
