"""Edits of a model whose groundings depend on values: equal to computing everything."""

import random

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V

I, J = V.I, V.J  # noqa: E741
PROGRAMS = {
    "a filter": [R.h(I) <= (R.x(I)[2.0], R.x(I) > 0.2, R.x(I) <= 0.9)],
    "derived, negated": [
        R.sum(I) <= R.e(I, J),
        R.big(I) <= (R.sum(I), R.sum(I) > 0),
        R.h(I) <= (R.x(I), ~R.big(I)),
    ],
    "two keys": [R.h(I) <= (R.x(J), R.x(I) - R.x(J) > 0.1)],
    "the best": [
        (R.best(I, J) <= R.e(I, J)) | [F.argmax_agg(agg_terms=[J])],
        R.h(I) <= (R.best(I, J), R.x(J)),
    ],
    "existential": [R.h(I) <= (R.x(I), R.e(I, J) > R.x(J))],
    "a softmax": [
        (R.w(I, J) <= (R.x(I), R.x(J), R.x(J) > 0.1))
        | [F.product, F.softmax_agg(agg_terms=[J])],
        (R.h(I) <= (R.w(I, J), R.x(J))) | [F.product],
    ],
}  # fmt: skip
VALUES = (-1.0, 0.0, 0.1, 0.2, 0.5, 0.9, 1.0)


def stated(key, value=None):
    atom = R[key[0]](*key[1:])
    return atom if value is None else atom[value]


@pytest.mark.parametrize("name", PROGRAMS)
def test_edits_are_followed(name):
    program = Program(PROGRAMS[name])
    names = [name for name in "xe" if f"R.{name}(" in repr(program.rules)]
    model = program.compile(R.h, dtype=torch.float64, dense=False)
    choices, facts, updating = random.Random(0), {}, model.updating()
    for _ in range(25):
        keys = {
            (of, *(choices.randrange(5) for _ in range("xe".index(of) + 1)))
            for of in choices.choices(names, k=3)
        }
        removed = [key for key in sorted(keys) if key in facts and choices.random() < 0.5]
        added = {key: choices.choice(VALUES) for key in sorted(keys) if key not in removed}
        facts = {key: value for key, value in facts.items() if key not in removed} | added
        found = updating.edit(
            add=[stated(*item) for item in added.items()], remove=map(stated, removed)
        )
        data = model.ground(facts=[stated(*item) for item in facts.items()])
        expected = {atom.terms: value.item() for atom, value in model.rows(data).items()}
        assert {atom.terms: value.item() for atom, value in found.items()} == pytest.approx(
            expected
        )


def test_only_what_an_edit_reaches_is_computed():
    rules = [R.h(I) <= (R.x(I), R.x(I) > 0.5), R.g(I) <= (R.h(J), R._e(I, J))]
    facts = [*(R.x(i)[i / 100] for i in range(100)), *(R.e(i, (i + 1) % 100) for i in range(100))]
    updating = Program(rules).compile(R.g).updating(facts=facts)
    updating.add(R.x(3)[0.4])
    assert "g" not in updating.computed  # it is below the threshold as before
    updating.add(R.x(3)[0.7])
    assert updating.computed["h"] == updating.computed["g"] == 1
    assert updating.output.at([2]).item() == pytest.approx(0.7)


def test_vectors_are_not_compared():
    model = Program([R.h(I) <= (R._x(I), R.x(I) > 0.5)]).compile(R.h)
    with pytest.raises(EdgewiseError, match="scalar"):
        model.updating(facts=[R.x(0)[[1.0, 2.0]]])


def test_weights_of_conditions_are_those_of_the_model():
    model = Program([R.h(I) <= (R.x(I), R.x(I)["t":1.0] > 0.5)]).compile(R.h)
    with torch.no_grad():
        model.t.fill_(-1.0)
    assert dict(model.updating(facts=[R.x(0)[1.0], R.x(1)[-1.0]]).output) == {R.h(1): -1.0}
