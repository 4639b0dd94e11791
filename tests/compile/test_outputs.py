"""An output is the caller's own: writing into it changes nothing else."""

import copy
import pickle

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, rows
from edgewise.ground.index import Constants
from edgewise.language.nodes import Constant, Rule
from edgewise.physical.relation import Relation


def test_keys_of_an_output_are_its_own() -> None:
    model = Program([R.h(V.X) <= (R._edge(V.X, V.Y), R.x(V.Y))]).compile(R.h)
    data = model.ground(edge=torch.tensor([[0, 2], [1, 2]]))
    for _ in range(3):
        found = model.rows(data, x=torch.ones(3))
        assert found.index.tolist() == [[0, 2]]
        found.index.add_(10)
        assert found.index.tolist() == [[10, 12]]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("trained", [False, True])
def test_a_copy_rule_gives_a_copy(compiled: bool, trained: bool) -> None:
    model = Program([R.h(V.I) <= R.x(V.I)]).compile(R.h)
    run = torch.compile(model, backend="eager") if compiled else model
    x = torch.ones(3, requires_grad=trained)
    for _ in range(4):
        with torch.no_grad():
            run(x=x).mul_(10)
        assert x.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("compiled", [False, True])
def test_facts_are_not_handed_out(compiled: bool) -> None:
    model = Program([R.h(V.I) <= R.x(V.I)]).compile(R.h)
    data = model.ground(x=rows(torch.tensor([[0, 1]]), torch.ones(2)))
    facts = model.ground(facts=[R.x(0)[1.0], R.x(1)[1.0]])
    for given in (data, facts):
        run = torch.compile(model, backend="eager") if compiled else model
        for _ in range(4):
            found = run(given)
            assert found.data.tolist() == [1.0, 1.0]
            found.data.mul_(10)


def test_weights_are_not_handed_out() -> None:
    model = Program([R.h <= R.one["w":2.0], R.one[1.0]]).compile(R.h)
    fact = Program([R.h(V.I) <= R.x(V.I), R.x(0)["v":2.0]]).compile(R.h)
    for each in (model, fact):
        for _ in range(4):
            with torch.no_grad():
                found = each()
                values = found if isinstance(found, torch.Tensor) else found.data
                assert values.flatten().tolist() == [2.0]
                values.mul_(10)


def test_an_updated_output_is_its_own() -> None:
    updating = Program([R.h(V.I) <= R.x(V.I)]).compile(R.h).updating(facts=[R.x(0)[1.0]])
    updating.output.data.mul_(10)
    assert updating.add([R.x(1)[1.0]]).data.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("batched", [False, True])
def test_reading_every_row_takes_one_pass(batched: bool) -> None:
    class Counted(Constants):
        decoded = 0

        def constant(self, code: int) -> Constant:
            self.decoded += 1
            return super().constant(code)

    names = [f"n{i:03}" for i in range(300)]
    constants = Counted(names)
    data = torch.randn(2, 300) if batched else torch.randn(300)
    codes = torch.tensor([[constants.code(name) for name in names]])
    relation = Relation("h", codes, data, constants, batched)
    items = dict(relation.items())
    assert constants.decoded == 300
    assert list(items) == [R.h(name) for name in names]
    assert torch.stack(list(items.values()), -1).equal(data)
    assert all(relation[atom].equal(value) for atom, value in items.items())
    assert constants.decoded == 600  # once more for an index of the rows


@pytest.mark.parametrize(
    "rule",
    [
        (R.h(0) <= R.x(V.I)) | [F.count_agg],
        R.h(V.J) <= (R.y(V.J), R._x(V.I)),
        R.h(0) <= (R.special.max_eval(1, 2), R._x(V.I)),
    ],
    ids=["a count", "a condition", "a number"],
)
@pytest.mark.parametrize("as_rows", [False, True])
def test_what_is_the_same_in_every_sample_is_given_for_each(rule: Rule, as_rows: bool) -> None:
    model = Program([rule]).compile(R.h)
    inputs = {name: torch.randn(*shape) for name, shape in (("x", (3, 4, 1)), ("y", (2,)))}
    inputs = {name: inputs[name] for name in model.inputs}
    for _ in range(3):
        found = (model.rows if as_rows else model)(**inputs)
        values = found.data if isinstance(found, Relation) else found
        assert values.shape[0] == 3
        assert values[0].equal(values[2])
        values.mul_(2)  # for somebody who may write into it


def test_a_listed_output_read_as_a_tensor_says_where_its_tensor_is():
    edge = torch.tensor([[0, 1], [1, 2]])
    h = Program([R.h(V.J) <= (R.x(V.I), R._edge(V.I, V.J))]).compile(R.h)(
        x=torch.ones(3), edge=edge
    )
    for name in ("shape", "sum", "backward", "numpy", "square"):
        with pytest.raises(EdgewiseError, match=f"no `{name}`") as caught:
            getattr(h, name)
        assert f"`.data.{name}`" in caught.value.help
    assert not hasattr(h, "shape")
    assert not hasattr(h, "shap")
    assert copy.deepcopy(h).data.equal(pickle.loads(pickle.dumps(h)).data)
