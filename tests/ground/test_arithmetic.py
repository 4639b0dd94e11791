"""The engine's arithmetic on columns gives what the reference's gives key by key."""

from itertools import product

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V
from edgewise.graphs import causal, random_edges, strided, window
from edgewise.ground import conditions
from edgewise.ground.index import Constants
from edgewise.language.specials import SPECIALS
from edgewise.reference import arithmetic as reference

CONSTANTS = Constants(["a", "b"])
KEYS = (-2, 0, 1, 2, 6, 7, "a", "b")
SOLVING = [(name, at) for name, s in SPECIALS.items() if s.most for at in s.computes]
PREDICATES = [name for name in SPECIALS if not name.endswith("_eval") and name != "fn"]


def atom(name, arity):
    return getattr(R.special, name)(*(getattr(V, f"X{at}") for at in range(arity)))


def cases(name, arity):
    keys = [(-9, 0, 3, 8), (-9, 0, 5, 40), (0, 1, 8, 9), (2, 16, 128)] if "bucket" in name else []
    return list(product(*keys[:arity], *[KEYS] * (arity - len(keys))))


def columns(found):
    return list(torch.tensor([[CONSTANTS.code(key) for key in case] for case in found]).T)


@pytest.mark.parametrize("name", PREDICATES)
def test_predicates_hold_of_the_same_keys(name):
    arity = SPECIALS[name].least + (SPECIALS[name].most is None)
    special, every = atom(name, arity), cases(name, arity)
    holds = conditions.holds(special, columns(every), CONSTANTS)
    assert holds.tolist() == [reference.holds(special, case) for case in every]


@pytest.mark.parametrize(("name", "at"), SOLVING)
def test_a_missing_key_is_the_same(name, at):
    arity = SPECIALS[name].most
    special, every = atom(name, arity), cases(name, arity)
    given = [[*case[:at], None, *case[at + 1 :]] for case in every]
    known = [None if p == at else c for p, c in enumerate(columns(every))]
    values, holds = conditions.computed(special, known, CONSTANTS, len(every))
    found = [reference.computed(special, case) for case in given]
    assert holds.tolist() == [key is not None for key in found]
    codes = [CONSTANTS.code(key) for key in found if key is not None]
    assert values[holds].tolist() == codes


@pytest.mark.parametrize("name", [name for name in SPECIALS if name.endswith("_eval")])
def test_numbers_are_the_same(name):
    every = cases(name, 2)
    values, holds = conditions.evaluated(name, columns(every))
    found = [reference.evaluated(name, case) for case in every]
    assert holds.tolist() == [number is not None for number in found]
    assert values[holds].tolist() == [number for number in found if number is not None]


LARGE = (0, 3, 1 << 31, 1 << 32, 1 << 33, 1 << 39, (1 << 40) - 1)


@pytest.mark.parametrize("name", ["mul", "add", "sub", "div", "mod"])
def test_large_keys_do_not_wrap(name):
    """2³²·2³² is not 0, though 64 bits would say so."""
    every = list(product(LARGE, LARGE, LARGE))
    special = atom(name, 3)
    holds = conditions.holds(special, columns(every), CONSTANTS)
    assert holds.tolist() == [reference.holds(special, case) for case in every]


COMPUTING = {
    "mul": R.special.mul(V.X, V.X, V.D),
    "add": R.special.add(V.X, V.X, V.D),
    "next": R.special.next(V.X, V.D),
    "formula": V.X * V.X == V.D,
    "below": V.D + V.X == -5,
}


@pytest.mark.parametrize("name", COMPUTING)
def test_a_computed_key_that_does_not_fit_is_refused(name):
    """It would read as a string, or be missing."""
    model = Program([R.h(V.X, V.D) <= (R.a(V.X), COMPUTING[name])]).compile(R.h)
    with pytest.raises(EdgewiseError) as caught:
        model.ground(facts=[R.a((1 << 40) - 1)[1.0], R.a("a")[1.0]])
    assert caught.value.code == "key-out-of-range"


def test_a_computed_key_that_does_not_fit_is_no_key_of_a_relation():
    program = Program([R.h(V.X) <= (R.a(V.X), R._a(V.D), R.special.mul(V.X, V.X, V.D))])
    facts = [R.a(key)[1.0] for key in (0, 1, 3, 9, 1 << 32, (1 << 40) - 1)]
    model = program.compile(R.h)
    assert list(dict(model.rows(model.ground(facts=facts)).items())) == [R.h(0), R.h(1), R.h(3)]


COMPARING = {
    "next": [R.special.next(V.Y, V.X)],
    "earlier": [R.special.leq(V.Y, V.X)],
    "not later": [~R.special.gt(V.Y, V.X)],
    "the last five": [R.special.sub(V.X, V.Y, V.D), R.special.leq(V.D, 5)],
    "every second": [R.special.sub(V.X, V.Y, V.D), R.special.mod(V.D, 2, 0)],
    "formula": [V.X // 2 == V.Y // 2],
    "a pattern": [(window(1) | causal() & strided(3))(V.X, V.Y)],
}


@pytest.mark.parametrize("conditions", COMPARING.values(), ids=COMPARING)
def test_keys_beyond_the_tokens_of_any_sequence_are_compared(conditions):
    attention = [
        (R.w(V.X, V.Y) <= (R.a(V.X), R.a(V.Y), *conditions))
        | [F.product, F.softmax_agg(agg_terms=[V.Y])],
        (R.h(V.X) <= (R.w(V.X, V.Y), R.a(V.Y))) | [F.product],
    ]
    joined = [R.h(V.X) <= (R.a(V.X), R._a(V.Y), *conditions)]
    facts = [R.a((1 << 33) + i)[1.0 + i] for i in range(8)]
    for rules in (attention, joined):
        program = Program(rules)
        model = program.compile(R.h, dtype=torch.float64)
        found = dict(model.rows(model.ground(facts=facts)).items())
        torch.testing.assert_close(found, dict(program.solve(facts)[R.h(V.X)]))
        assert found


def test_a_graph_that_depends_on_the_number_of_tokens_has_no_such_keys():
    program = Program([R.h(V.X) <= (R.a(V.X), R._a(V.Y), random_edges(2, seed=0)(V.X, V.Y))])
    with pytest.raises(EdgewiseError, match="at most 2,147,483,647"):
        program.solve([R.a(1 << 33)[1.0]])
