"""A domain goes by the name of a variable: no pass may give the variable another name."""

import contextlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import F, Program, R, V, W
from edgewise.checks.evaluation import OutOfDomain
from edgewise.language import nodes
from edgewise.language.statements import atoms

A, B, G, H, X = V.A, V.B, V.G, V.H, V.X
NUMBERS = [R.a(2)[1.5], R.a(3)[0.5], R.b(0)[2.0], R.b(2)[3.0], R.b(3)[1.0]]
HEADS = [R.q(h, i)[[0.5 * h + 0.25, i - 1.0]] for h in range(3) for i in range(3)]
SCORE = (R.weights(H, A, B) <= (R.q(H, B).T @ R.q(H, A), R.special.geq(H, 0))) | [
    F.softmax_agg(agg_terms=[B])
]
PROGRAMS = {
    "a helper": (
        [
            R.pair(H, X) <= (R.a(X)[W.f(H)[2,]], R.b(X)),
            R.out <= R.pair(V._Y, V._Y),
        ],
        NUMBERS,
    ),
    "a helper with a weight": (
        [
            R.pair(H, X)[W.top(H)[3, 2]] <= (R.a(X)[W.f(H)[2,]], R.b(X)),
            R.out <= R.pair(V._Y, V._X),
        ],
        NUMBERS,
    ),
    "attention": (
        [SCORE, (R.out(G, A) <= (R.weights(G, A, B), R.q(G, B))) | [F.product]],
        HEADS,
    ),
}


@pytest.mark.parametrize("domain", [{H: 2}, {H: 2, G: 3, V._Y: 3}, {H: 2, G: 2, V._Y: 2}], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_variable_ranges_over_its_own_domain(name, domain):
    rules, facts = PROGRAMS[name]
    program = Program(rules, domains=domain)
    model = program.compile(R.out, dtype=torch.float64, seed=0)
    found = dict(model.rows(model.ground(facts=facts)))
    weights = {name: model.weight(name) for name in model._paths}
    solution = program.solve(facts, weights=weights)
    if name == "attention":
        expected = dict(solution[R.out(G, A)])
    else:
        expected = {R.out: solution[R.out]} if R.out in solution else {}
    assert set(found) == set(expected)
    for atom, value in expected.items():
        torch.testing.assert_close(found[atom], value)


K, Y, Z = V.K, V.Y, V.Z
ONE = (1, 1)
HELPERS = [
    R.h(H, X) <= (R.a(X)[W.f(H)[ONE]], R.b(X)),
    (R.h(H, X)[W.t(H)[ONE]] <= (R.a(X)[W.f(H)[ONE]], R.b(X))) | [F.tanh],
    R.h(H, X) <= (R.a(X)[W.f(H, X)[ONE]], R.b(X)),
    (R.h(H, X, Y) <= (W.f(H)[ONE], R.a(X), R.b(Y))) | [F.product],
    R.h(H, X, Y) <= (W.f(H, G)[ONE], R._a(X), R._b(Y), R.special.sub(X, Y, G)),
    R.h(H, X, Y) <= (R._a(X), R._b(Y), R.special.sub_eval(X, Y)[W.f(H)[ONE]]),
]


@st.composite
def programs(draw):
    """A helper over a domain, and rules that read it beside atoms that bind its variable."""
    helper = draw(st.sampled_from(HELPERS))
    v = draw(st.sampled_from([H, G, K]))
    read = R.h(v, X) if len(helper.head.terms) == 2 else R.h(v, X, Y)
    more = [R.c(v), R._c(v), R.d(v, X), R._d(v, X), ~R.c(v), R.special.leq(v, 1)]
    more += [R.a(X)[W.g(v)[ONE]], R.p(X, Z)]
    body = (read, *draw(st.lists(st.sampled_from(more), max_size=2)))
    combined = draw(st.sampled_from([[], [F.product]]))
    if len(read.terms) == 3 and draw(st.booleans()):
        rules = [
            (R.w(v, X, Y) <= body) | [*combined, F.softmax_agg(agg_terms=[Y])],
            (draw(st.sampled_from([R.out(v, X), R.out(X)])) <= (R.w(v, X, Y), R.b(Y)))
            | [F.product],
        ]
    else:
        heads = [R.out(v), R.out(X), R.out(v, X)]
        rules = [(draw(st.sampled_from(heads)) <= body) | combined]
    sizes = st.sampled_from([2, 3, 4, (0, 2)])
    first = draw(sizes)
    return Program(
        [helper, *rules], domains={H: first, K: first, G: draw(sizes), X: draw(st.integers(2, 3))}
    )


@st.composite
def facts(draw, program):
    number = st.sampled_from([-1.0, 0.5, 2.0])
    read = {a.relation for r in program.rules for a in atoms(r.body) if isinstance(a, nodes.Atom)}
    sizes = {"a": (3,), "b": (3,), "c": (5,), "d": (5, 3), "p": (3, 3)}
    found = []
    for name in sorted(read & sizes.keys()):
        keys = st.tuples(*(st.integers(0, size - 1) for size in sizes[name]))
        for key in draw(st.sets(keys, min_size=1, max_size=6)):
            found.append(getattr(R, name)(*key)[draw(number)])
    return found


@pytest.mark.filterwarnings("ignore::edgewise.errors.EdgewiseWarning")
@settings(max_examples=150)
@given(st.data())
def test_a_helper_leaves_out_what_its_domain_does_not_have(data):
    """Also where it is written into a rule in which atoms bind other keys."""
    program = data.draw(programs())
    told = data.draw(facts(program))
    model = program.compile(R.out, dtype=torch.float64, seed=0)
    weights = {name: model.weight(name) for name in model._paths}
    solution = None
    with contextlib.suppress(OutOfDomain):
        solution = program.solve(told, weights=weights)
    if solution is None:
        with pytest.raises(OutOfDomain):
            program.compile(R.out, without=["inline pairs", "inline places"]).ground(facts=told)
        return
    assert_solved(dict(model.rows(model.ground(facts=told))), solution, program)
    split = data.draw(st.integers(0, len(told)))
    try:
        program.solve(told[:split], weights=weights)
    except OutOfDomain:  # of an atom that is negated until the other facts come
        with pytest.raises(OutOfDomain):
            model.updating(facts=told[:split])
        return
    assert_solved(dict(model.updating(facts=told[:split]).add(told[split:])), solution, program)


def assert_solved(found, solution, program):
    expected = dict(solution[program.rules[-1].head])
    assert set(found) == set(expected)
    for atom, value in expected.items():
        torch.testing.assert_close(found[atom], value)
