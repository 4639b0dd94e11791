"""A domain goes by the name of a variable: no pass may give the variable another name."""

import pytest
import torch

from edgewise import F, Program, R, V, W

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
