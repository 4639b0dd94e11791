"""Facts of samples that are learned: the numbers are those of PyNeuraLogic 0.9.2."""

import pytest
import torch

from edgewise.neuralogic import Dataset, FileDataset, R, Sample, Settings, V
from edgewise.neuralogic.core import Model
from edgewise.neuralogic.errors import BadSample
from edgewise.neuralogic.nn import SGD, Adam
from edgewise.neuralogic.tape_training import TapedBatches

MEAN = R.h <= R.x(V.A)


def built(samples, rules=(MEAN,), optimizer=None, **options):
    model = Model()
    model.add_rules(rules)
    model.build(Settings(optimizer=optimizer or SGD(0.1)))
    return model, model.build_dataset(Dataset(samples), learnable_facts=True, **options)


HALF = [R.x(1)[0.5]]
CASES = {  # samples, outputs at first, after three epochs
    "two samples": (
        [Sample(R.h[1.0], [R.x(1)[0.5]]), Sample(R.h[0.0], [R.x(1)[0.25]])],
        ([0.5, 0.25], [0.744, 0.128]),
    ),
    "one example of two queries": (
        [Sample(R.h[1.0], HALF), Sample(R.h[0.0], HALF)],
        ([0.5, 0.5], [0.459008, 0.459008]),
    ),
    "one that stays": (
        [Sample(R.h[1.0], [R.x(1)[0.5].fixed(), R.x(2)[0.5]])],
        ([0.5], [0.5713125]),
    ),
    "no value": ([Sample(R.h[1.0], [R.x(1), R.x(2)])], ([1.0], [1.0])),
    "a shape": ([Sample(R.h[[1.0, 0.0]], [R.x(1)[2,]])], ([[0.0, 0.0]], [[0.271, 0.0]])),
    "vectors": (
        [Sample(R.h[[1.0, 0.0]], [R.x(1)[[0.1, 0.2]], R.x(2)[[0.1, 0.2]]])],
        ([[0.1, 0.2]], [[0.2283625, 0.171475]]),
    ),
    "one name": (
        [Sample(R.h[1.0], [R.x(1)["a":0.5], R.x(2)["a":0.5]])],
        ([0.5], [0.744]),
    ),
    "the first counts": ([Sample(R.h[1.0], [R.x(1)[0.5], R.x(1)[0.7]])], ([0.5], [0.744])),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    samples, (first, last) = CASES[name]
    model, data = built(samples)
    for wanted in (first, last):
        got, wanted = (torch.tensor(v, dtype=torch.float64) for v in (model(data), wanted))
        torch.testing.assert_close(got, wanted)
        model.train(data, epochs=3)


@pytest.mark.parametrize("optimizer", [SGD, Adam])
def test_a_tape_gives_the_same(optimizer):
    samples = [
        Sample(R.h[1.0], [R.x(1)["a":0.5], R.x(2)[0.1]]),
        Sample(R.h[-1.0], [R.x(1)["a":0.5], R.x(3)[0.2]]),
    ]
    found = []
    for epochs in ([1] * 3, [1] * 12, [12]):
        model, data = built(samples, [MEAN, R.x(9)["w":0.3]], optimizer(0.1))
        for count in epochs:
            model.train(data, epochs=count)
        found.append((data.state_dict(), model.state_dict()["weights"]))
    assert isinstance(data.tape, TapedBatches)
    for one, other in zip(found[1], found[2], strict=True):
        one, other = one.get("weights", one), other.get("weights", other)
        assert one == pytest.approx(other)
    assert found[0] != found[1]
    plain, tape = found[0][0]["weights"], found[1][0]["weights"]
    assert plain["x(1)"] != 0.5
    assert plain.keys() == tape.keys() == {"x(1)", "x(2)", "x(3)"}


def test_one_dataset_after_another():
    model, first = built([Sample(R.h[1.0], HALF)], [MEAN, R.x(9)["w":0.3]])
    second = model.build_dataset(Dataset([Sample(R.h[-1.0], [R.x(2)[0.5]])]), learnable_facts=True)
    plain = model.build_dataset(Dataset([Sample(R.h[1.0], HALF)]))
    for data in (first, second, plain):
        model.train(data)
    assert first.state_dict()["weights"]["x(1)"] > 0.5
    assert second.state_dict()["weights"]["x(2)"] < 0.5
    assert plain.state_dict() == {"weights": {}}
    assert model(second[0]) == pytest.approx(model(second)[0])


def test_states_are_by_fact():
    facts = [R.x(1)["a":0.5], R.x(2)["a":0.5], R.x("b", 3)[0.1], R.y[[1.0, 2.0]], R.x(4)]
    rules = [MEAN, R.h <= R.x(V.A, V.B), R.g <= R.y]
    model, data = built([Sample(R.h[1.0], facts), Sample(R.g[[0.0, 0.0]], facts)], rules)
    state = {"weights": {"x(1)": 0.5, "x(2)": 0.5, "x(b, 3)": 0.1, "y": [1.0, 2.0]}}
    assert data.state_dict() == state
    model.train(data, epochs=5)
    changed = data.state_dict()
    assert changed != state
    assert data.load_state_dict(state) == ([], [])
    assert data.state_dict() == state
    found = data.load_state_dict({"weights": {"x(1)": 2.0, "z": 1.0}}, strict=False)
    assert found.missing_keys == ["x(2)", "x(b, 3)", "y"]
    assert found.unexpected_keys == ["z"]
    assert data.state_dict()["weights"]["x(2)"] == 2.0


def test_shapes_of_facts_that_are_not_learned_are_zeros():
    model = Model()
    model.add_rules([MEAN])
    model.build(Settings())
    data = model.build_dataset(Dataset([Sample(R.h, [R.x(1)[2,], R.x(2)[[1.0, 2.0]]])]))
    assert list(model(data)) == [[0.5, 1.0]]


REFUSED = {
    "2 learned values": lambda d: d.state_dict(),
    "lacks": lambda d: d.load_state_dict({"weights": {}}),
    "and get two": lambda d: d.load_state_dict({"y(1)": 1.0, "y(2)": 2.0}, strict=False),
    "shape": lambda d: d.load_state_dict({"y(1)": [1.0, 2.0]}, strict=False),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_states_that_are_refused(reason):
    named = [R.y(1)["a":0.5], R.y(2)["a":0.5]]
    samples = [Sample(R.h, [R.x(1)[0.5], *named]), Sample(R.h, [R.x(1)[0.5]])]
    _, data = built(samples, [MEAN, R.g <= R.y(V.A)])
    with pytest.raises(BadSample, match=reason):
        REFUSED[reason](data)


def test_what_cannot_be_learned_is_refused(tmp_path):
    with pytest.raises(BadSample, match="rules derive `x`"):
        built([Sample(R.h, HALF)], [MEAN, R.x(V.A) <= R.y(V.A)])
    with pytest.raises(BadSample, match="has the shapes"):
        built([Sample(R.h, [R.x(1)["a":0.5], R.x(2)["a":2,]])])
    (tmp_path / "e.txt").write_text("0.5 x(1).\n")
    (tmp_path / "q.txt").write_text("1.0 h.\n")
    model, _ = built([Sample(R.h, HALF)])
    files = FileDataset(str(tmp_path / "e.txt"), str(tmp_path / "q.txt"))
    with pytest.raises(BadSample, match="facts of files"):
        model.build_dataset(files, learnable_facts=True)
