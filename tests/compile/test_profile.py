"""Time by rule."""

import json

import pytest
import torch

from edgewise import Program, R, V
from tests.compile.rewritings import D_K, OUT, QKV, WEIGHTS, D, numbers

PROGRAM = Program([*QKV, D_K, WEIGHTS, OUT])


@pytest.fixture
def model():
    return PROGRAM.compile(R.out, seed=0, dtype=torch.float64)


@pytest.mark.parametrize("backward", [False, True])
def test_every_rule_has_its_time(model, backward):
    found = model.profile(x=numbers(6, D), backward=backward)
    assert sorted(entry.relation for entry in found.entries) == ["k", "out", "q", "v"]
    assert sum(entry.share for entry in found.entries) == pytest.approx(1)
    times = {entry.relation: entry.forward for entry in found.entries}
    assert times["out"] > 0
    assert times["q"] > 0  # the product that k and v are parts of
    assert all(entry.forward >= 0 and entry.rows == 6 for entry in found.entries)
    assert found.forward == pytest.approx(sum(entry.forward for entry in found.entries))
    assert (found.backward is not None) == backward
    if backward:
        assert next(e.backward for e in found.entries if e.relation == "out") > 0


def test_it_is_a_table(model):
    lines = repr(model.profile(x=numbers(6, D), backward=True)).split("\n")
    head = ["relation", "rows", "groundings", "forward", "backward", "share", "rule"]
    assert lines[0].split() == head
    assert len(lines) == 1 + 4 + 1 + 1
    assert lines[-1] == "median of 5 runs on cpu"
    assert "attention from I over J" in "\n".join(lines)


def test_it_is_json(model):
    data = json.loads(json.dumps(model.profile(x=numbers(6, D)).to_json()))
    assert data["device"] == "cpu"
    assert {"relation", "rule", "rows", "groundings", "forward", "share"} <= set(data["entries"][0])


def test_it_changes_nothing(model):
    x = numbers(6, D).requires_grad_()
    before = model(x=x)
    model.profile(x=x, backward=True)
    assert x.grad is None
    assert all(p.grad is None for p in model.parameters())
    torch.testing.assert_close(model(x=x), before)


def test_recursion_is_one_entry():
    program = Program(
        [
            R.h(V.T) <= (R.x(V.T), R.hidden.first(V.T)),
            R.h(V.T) <= (R.h(V.S)["w":0.5], R.special.next(V.S, V.T), R._x(V.T)),
            R.out(V.T) <= R.h(V.T)[2.0],
        ]
    )
    model = program.compile(R.out)
    data = model.ground(x=torch.ones(5), first=torch.tensor([[0]]))
    found = model.profile(data, backward=True)
    assert {entry.relation: entry.groundings for entry in found.entries} == {"h": 5, "out": 5}
    assert all(entry.backward > 0 for entry in found.entries)


def test_several_rules_of_one_relation_are_apart():
    model = Program([R.h(V.X) <= R.a(V.X)[2.0], R.h(V.X) <= R.a(V.X)[3.0]]).compile(R.h)
    found = model.profile(a=torch.ones(3))
    assert [entry.relation for entry in found.entries] == ["h", "h", "h"]
    assert len({entry.rule for entry in found.entries}) == 3  # and how they meet
