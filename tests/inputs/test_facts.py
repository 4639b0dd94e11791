"""Facts read by columns are the facts read one by one, and what is wrong is said all the same."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from edgewise import EdgewiseError, Program, R, V, ragged
from edgewise.inputs import facts as reading
from edgewise.inputs.facts import read_facts

PROGRAM = Program([R.h(V.X) <= R.a(V.X), R.h(V.X) <= (R.b(V.X, V.Y), R._c("s", V.Y))])
KEY = st.integers(-3, 3) | st.sampled_from(["s", "t", "ä", "0"])
SCALARS = st.floats(-2, 2, width=32)


@st.composite
def samples(draw):
    """Samples of facts: keys of both kinds, values of one shape for each relation, or tensors."""
    kinds = {name: draw(st.sampled_from(["none", "number", "column", "tensor"])) for name in "abc"}
    arities = {"a": 1, "b": 2, "c": 2}

    def fact(name, key):
        atom = R[name](*key)
        match kinds[name]:
            case "number":
                return atom[draw(SCALARS)]
            case "column":
                return atom[[draw(SCALARS), draw(SCALARS)]]
            case "tensor":
                return atom[torch.tensor([draw(SCALARS), 1.0])]
        return atom

    found = []
    for _ in range(draw(st.integers(1, 3))):
        sample = []
        for name, arity in arities.items():
            keys = draw(st.lists(st.tuples(*[KEY] * arity), unique=True, max_size=5))
            sample += [fact(name, key) for key in keys]
        found.append(draw(st.permutations(sample)))
    return found


def not_plain(*_):
    raise reading._Irregular


def tables(given, careful):
    with pytest.MonkeyPatch.context() as patch:
        if careful:
            patch.setattr(reading, "_by_columns", not_plain)
        return read_facts(given, Program([]), ["s"], lambda _: None)


@given(samples(), st.booleans())
@settings(deadline=None)
def test_columns_are_facts_one_by_one(found, batched):
    given_ = ragged(found) if batched else found[0]
    quick, careful = tables(given_, False), tables(given_, True)
    assert list(quick.tables) == list(careful.tables)
    assert quick.constants.strings == careful.constants.strings
    assert quick.samples == careful.samples == (len(found) if batched else None)
    for name, one in quick.tables.items():
        other = careful.tables[name]
        assert torch.equal(one.keys, other.keys)
        assert one.atoms == other.atoms
        assert len(one.keys) == len(one.atoms)
        for a, b in zip(one.stored(torch.float32), other.stored(torch.float32), strict=True):
            assert torch.equal(a, b)
        for row, atom in zip(one.keys.tolist(), one.atoms, strict=True):
            assert row[batched:] == [quick.constants.code(term) for term in atom.terms]


BAD = {
    "twice": [R.a(1)[1.0], R.a(1)[2.0]],
    "twice without terms": [R.a(0), R.d, R.d],
    "a variable": [R.a(0), R.a(V.X)],
    "a shape": [R.a(0)[2, 3]],
    "two arities": [R.a(0), R.a(0, 1)],
    "another arity": [R.a(0, 1)],
    "not a number": [R.a(0)[torch.tensor(float("nan"))]],
    "too large": [R.a(1 << 50)],
    "larger": [R.a(1 << 70)],
    "unknown": [R.aa(1)],
    "negated": [~R.a(1)],
    "a rule": [R.a(1) <= R.b(1, 2)],
    "something else": [R.a(1), 3],
    "not a list": 7,
    "a word": "a(1)",
}
CODES = {
    **{"twice": "duplicate-fact", "twice without terms": "duplicate-fact"},
    **{"two arities": "arity-mismatch", "another arity": "arity-mismatch"},
    **{"not a number": "not-a-number", "too large": "key-out-of-range"},
    **{"larger": "key-out-of-range", "unknown": "unknown-input"},
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("batched", [False, True])
def test_what_is_wrong_is_said(name, batched):
    program = PROGRAM + Program([R.h(V.X) <= (R.a(V.X), R._d)])
    model = program.compile(R.h)
    with pytest.raises(EdgewiseError) as caught:
        model.ground(facts=ragged([[], BAD[name]]) if batched else BAD[name])
    assert caught.value.code == CODES.get(name, "bad-fact")


def test_samples_may_repeat_what_others_say():
    model = Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)
    data = model.ground(facts=ragged([[R.a(1)[1.0]], [R.a(1)], [R.a(1)[3.0], R.a(0)]]))
    assert model(data).data.tolist() == [1.0, 1.0, 1.0, 3.0]


def test_facts_may_come_from_a_generator():
    model = Program([R.h(V.X) <= R.a(V.X)]).compile(R.h)
    tensors = (R.a(i)[torch.tensor(float(i))] for i in (2, 1))
    assert model(model.ground(facts=tensors)).data.tolist() == [1.0, 2.0]
    assert model(model.ground(facts=(R.a(i) for i in range(3)))).data.tolist() == [1.0] * 3


def test_gradients_reach_values_that_are_tensors():
    model = Program([R.h(V.X) <= R.a(V.X)[2.0]]).compile(R.h)
    x = torch.tensor(3.0, requires_grad=True)
    model(model.ground(facts=[R.a(0)[x], R.a(1)[1.0]])).data.sum().backward()
    assert x.grad == 2.0


def test_keys_that_a_function_makes_of_nothing_are_integers():
    half = R.special.fn(lambda n: n // 2)
    rules = [R.h(V.D) <= (R.a(V.X), half(V.X, V.D)), R.h(0) <= R.b(V.X, V.Y)]
    model = Program(rules).compile(R.h)
    assert model(model.ground(facts=[R.b(1, 2)[3.0]])).data.tolist() == [3.0]
