"""What a newcomer writes first: refused with the spelling that works."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

import edgewise
from edgewise import EdgewiseError, F, Program, R, V, graphs

Q = torch.randn(1, 2, 16, 8)
CALLED = Program([R.h(V.I) <= F.call(torch.nn.Linear(2, 2))(R.x(V.I))])


@pytest.mark.parametrize(
    ("write", "help"),
    [
        (lambda: R.hidden <= R.x, 'R["hidden"]'),
        (lambda: R.special / 1, 'R["special"]'),
        (lambda: R[5], 'R["h"]'),
        (lambda: R[""], 'R["h"]'),
        (lambda: V[1], 'V["I"]'),
        (lambda: V[""], 'V["I"]'),
        (lambda: R.x(V.I)[""], "a list of numbers"),
        (lambda: R.x(I=V.I), "write `(V.I)`"),
        (lambda: R.special.leq(V.I, b=3), "write `(V.I, 3)`"),
        (lambda: R.x([V.I, [V.J]]), "`*`"),
        (lambda: R.special._in(V.I, [1, 2]), "`*`"),
        (lambda: torch.tensor(2) >= V.I, "`2`"),
        (lambda: np.array(2) >= V.I, "`2`"),
        (lambda: R.h(V.I) <= {R.x(V.I), R._y(V.I)}, "a set has no order"),
        (lambda: R.h(V.I) <= R.x(V.I) and R._y(V.I), "a body is a tuple"),
        (lambda: R.x(V.I) / 3, "`(1 / 3) * R.x(V.I)`"),
        (lambda: -(V.I == V.J), "condition"),
        (lambda: R.h(V.I) <= R.x(V.I).relu(), "`F.relu(R.x(V.I))`"),
        (lambda: R.h(V.I) <= R.x(V.I).mean(), "F.sum_agg"),
        (lambda: R.h(V.I) <= (R.x(V.I), V.I.isin([1, 2])), "R.special._in(V.I, 1, 2)"),
        (lambda: F.norm(epsilon=1e-5), "F.norm(eps=1e-5)"),
        (lambda: F.sparsemax_agg(agg_term=[V.I]), "`F.sparsemax_agg(agg_terms=[V.J])`"),
        (lambda: F.rms_norm(eps="a"), "`F.rms_norm(eps=1e-5)`"),
        (lambda: F.norm(eps=-1.0), "a number from 0"),
        (lambda: F.rms_norm(eps=float("nan")), "a number from 0"),
        (lambda: R[64, 32], "R.h[64, 32]"),
        (lambda: R.h(V.I) <= (R.x(V.I), V.I in [1, 2]), "R._some(V.I)"),
        (lambda: R.h(V.I) <= (R.x(V.I), V.I**2 <= 6), "V.I * V.I"),
        (lambda: (V.J <= V.I) | (V.J == 5), "write two rules"),
        (lambda: setattr(R, "h", 5), "a fact with a value"),
        (lambda: setattr(V, "I", 5), "a rule is"),
        (lambda: R.h(V.I) <= (R.x(V.I), V.I in [1, 2]), "R.special._in(V.I, 1, 2)"),
        (lambda: R.h(V.I) <= (R.x(V.I), 0 <= V.I <= 5), "`0 <= V.I, V.I <= 5`"),
        (lambda: R.h(V.I) <= (R.x(V.I), not (V.I <= 5)), "`~a`"),
        (lambda: R.h(V.I) <= (R.x(V.I), (V.I <= 5, V.I >= 2)), "*conditions"),
        (lambda: R.h(V.I) <= (R.x(V.J), graphs.window(2)), "`window(2)(V.I, V.J)`"),
        (lambda: R.h(V.I) <= (R.x(V.J), graphs.window), "`window(...)(V.I, V.J)`"),
        (lambda: R.h(V.I) <= (R.x(V.J), lambda i, j: i <= j), "graphs.where(function)(V.I, V.J)"),
        (lambda: V.I ^ V.J, "graphs.where"),
        (lambda: 1 << V.I, "`2 * V.I`"),
        (lambda: V.I % 0 == V.J, "another number"),
        (lambda: R.special.lte(V.I, 3), "`R.special.leq`"),
        (lambda: R.special["gte"](V.I, 3), "`R.special.geq`"),
        (lambda: Program([R.h(V.I) <= R.x("I")]).check(), "`V.I`"),
        (lambda: Program([R.h >= R.x]), "a rule is `head <= body`"),
        (lambda: (R.h(V.I) <= R.x(V.I) & R.y(V.I)) | [F.product], "`(a, b)`"),
        (lambda: graphs.where(lambda b, h, q, k: q >= k), "mask_mod(0, 0, i, j)"),
        (lambda: Program([R.h(V.I) == R.x(V.I)]), "head <= body"),
        (lambda: edgewise.attention(Q, Q, Q, torch.ones(16, 16)), "from_dense"),
        (lambda: edgewise.attention(Q, Q, Q, lambda i, j: i >= j), "graphs.where"),
        (lambda: edgewise.attention(Q, Q, Q, "window(3)"), "graphs.parse('window(3)')"),
        (lambda: edgewise.attention(Q, Q, Q, graphs.window), "`window(...)`"),
        (lambda: graphs.window(3) & graphs.causal, "call it"),
        (lambda: graphs.window(3) + graphs.causal(), "`a | b`"),
        (lambda: R.h(V.I) <= R.x(V.I + 1), "`V.Next == V.I + 1`"),
        (lambda: R.x(V.I)["w", 4, 3], "`['w': 64, 32]`"),
        (lambda: R.h(V.I) <= (R.x(V.I), V.I is not V.J), "`V.I != V.J`"),
        (lambda: Program.parse("h(X) :- x(X), not y(X)."), "`!a(X)`"),
        (lambda: Program.parse("h(X) :- x(X), \\+ y(X)."), "`!a(X)`"),
        (lambda: Program.parse("h(X) :- x(X), X \\= 2."), "`X != Y`"),
        (lambda: Program.parse("h(X) :- x(Y), X is Y + 1."), "`X == Y + 1`"),
        (lambda: Program.parse("h(X) :- x(X); y(X)."), "two rules"),
        (lambda: Program([R.hidden_(V.I) <= R.x(V.I)]).solve([R.x(1)])[R.hiden_(V.I)], "hidden_"),
        (lambda: R.h(V.I) <= (R.x(V.I), R.x(V.I) == R.y(V.I)), "R.b(V.I) >= R.a(V.I)"),
        (lambda: R.h(V.I) <= max(R.x(V.I), R.y(V.I)), "`F.max(R.a, R.b)`"),
        (lambda: R.h(V.I) <= torch.relu(R.x(V.I)), "`F.relu(R.a(V.X))`"),
        (lambda: R.h(V.I) <= torch.nn.Linear(3, 3)(R.x(V.I)), "`R.a(V.X)[64, 32]`"),
        (lambda: R.h(V.I) <= torch.ones(3) * R.x(V.I), "`W[tensor].fixed()`"),
        (lambda: R.h(V.I) <= np.ones(3) * R.x(V.I), "`W[tensor].fixed()`"),
        (lambda: R.h(V.I) <= 1 / R.x(V.I), "`F.inverse(a)`"),
        (lambda: R.h(V.I) <= R.x(V.I) % 2, "`V.I % 2`"),
        (lambda: R.h(V.I) <= (R.x(V.I) << 1), "`F.inverse(a)`"),
        (lambda: CALLED.solve([R.x(0)[[1.0, 1.0]]]), "F.call(module.double())"),
        (lambda: R("h")(V.I), "R['h']"),
        (lambda: V("I"), "V['I']"),
        (lambda: F("tanh"), "`F.name`"),
        (lambda: graphs.causal() ^ graphs.window(1), "`(a - b) | (b - a)`"),
        (lambda: sum([graphs.causal(), graphs.window(1)]), "`a | b`"),
        (lambda: graphs.causal() * graphs.window(1), "`a & b`"),
        (lambda: Program(R.h(V.I) <= R.x(V.I), R.g(V.I) <= R.h(V.I)), "`Program([a, b])`"),
        (
            lambda: Program([R.h(V.I) <= R.x(V.I)]) + (R.g(V.I) <= R.h(V.I)),
            "`Program([program, rule])`",
        ),
        (lambda: Program([R.h(V.I) <= R.x(V.I)]).solve(x=torch.ones(3)), "`compile(R.out)`"),
        (lambda: Program([R.h(V.I) <= R.x(V.I)]).solve([R.x(1)], sed=0), "`seed`"),
        (
            lambda: Program([R.h(V.I) <= R.x(V.I)]).solve(R.x(1), R.x(2)),
            "`solve([R.a(1), R.b(2)])`",
        ),
        (lambda: R.h(V.I) <= R.x[V.I], "`R.name(V.I)`"),
        (lambda: R.h(V.I) <= R.x(V.I)(4, 3), "`R.x(V.I)[64, 32]`"),
        (lambda: (R.h(V.I) <= R.x(V.I)) | [torch.tanh], "`| [F.tanh]`"),
        (lambda: (R.h(V.I) <= R.x(V.I)) | ["relu"], "`| [F.relu]`"),
        (lambda: (R.h(V.I) <= R.x(V.I)) | [torch.nn.ReLU()], "F.call(module)(R.x(V.I))`"),
        (lambda: graphs.causal & graphs.window(1), "`causal(...)`"),
        (lambda: graphs.causal | graphs.window(1), "`causal(...)`"),
        (lambda: graphs.full - graphs.window(1), "`full(...)`"),
        (lambda: graphs.causal() & graphs.window, "`window(...)`"),
        (lambda: graphs.window(1).dense(8) & graphs.causal(), "`graphs.from_dense(mask)`"),
    ],
)
def test_a_slip_is_refused_with_the_right_spelling(write, help):
    with pytest.raises(EdgewiseError) as caught:
        write()
    assert help in caught.value.help


def test_only_of_a_hidden_atom_one_that_is_not_hidden_is_suggested():
    for condition in (R._a(V.X), R.special.leq(V.X, 3), ~R.a(V.X)):
        with pytest.raises(EdgewiseError) as caught:
            Program([R.h(V.X) <= (R.b(V.X), condition[2.0])])
        assert ("hidden" in caught.value.help) == (condition == R._a(V.X))


def test_the_spellings_that_are_suggested_work():
    assert R["hidden"](V.I).relation == "hidden"
    assert graphs.parse("window(3)") == graphs.window(3)
    mask = graphs.window(3).dense(16)
    found = edgewise.attention(Q, Q, Q, graphs.from_dense(mask))
    same = edgewise.attention(Q, Q, Q, graphs.where(lambda i, j: (i - j).abs() <= 3))
    torch.testing.assert_close(found, same)
    torch.testing.assert_close(found, edgewise.attention(Q, Q, Q, graphs.window(3)))
    assert R.special["leq"](V.I, 3) == R.special.leq(V.I, 3)
    assert graphs.where(lambda i, j: True).dense(3).all()


TUPLE_AND_LIST = "R.h(V.I) <= (R.x(V.I), R.y(V.I)) | [F.tanh]"
PARENTHESES = "help: put the rule into parentheses: `(head <= (a, b)) | [...]`"


def test_python_says_that_a_rule_with_a_tuple_needs_parentheses():
    script = f"from edgewise import F, R, V\n{TUPLE_AND_LIST}"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.stderr.rstrip().endswith(PARENTHESES)
    other = subprocess.run([sys.executable, "-c", "() | []"], capture_output=True, text=True)
    assert "help" not in other.stderr


def test_a_notebook_says_that_a_rule_with_a_tuple_needs_parentheses(capsys):
    shell = InteractiveShell.instance()
    try:
        edgewise.language.watch_for_parentheses()
        shell.run_cell("from edgewise import F, R, V")
        shell.run_cell(TUPLE_AND_LIST)
    finally:
        InteractiveShell.clear_instance()
    assert PARENTHESES in capsys.readouterr().out
