"""Training on a tape gives the numbers of plain training."""

import pytest
import torch

import edgewise.neuralogic
import edgewise.neuralogic.core.model
import edgewise.neuralogic.nn.optim.lr_scheduler
from edgewise.neuralogic import Dataset, Sample, Settings
from edgewise.neuralogic.core import Model
from edgewise.neuralogic.nn import SGD, Adam, CrossEntropy
from edgewise.neuralogic.nn.optim.lr_scheduler import GeometricLR
from edgewise.neuralogic.tape_training import TapedBatches
from tests.neuralogic.cases import CASES, filled
from tests.neuralogic.test_parity import assert_close

EXAMPLES = ["XOR, naive", "XOR, generalised", "trains", "triangles", "time series", "molecules"]
EXAMPLES += ["Nations", "relational attention"]


def trained(name, plain, monkeypatch, batch_size=1, **options):
    """Results of the last epoch and weights."""
    rules, samples, own = CASES[name](edgewise.neuralogic)
    settings = {"optimizer": SGD(0.1), **own, **{k: v() for k, v in options.items()}}
    epochs = 100 if plain else 2
    monkeypatch.setattr(edgewise.neuralogic.core.model, "PLAIN_EPOCHS", epochs)
    model = Model()
    model.add_rules(rules)
    model.build(Settings(**settings))
    state = model.state_dict()
    state["weights"] = {index: filled(value, index) for index, value in state["weights"].items()}
    model.load_state_dict(state)
    data = model.build_dataset(Dataset([Sample(q, f) for q, f in samples]), batch_size=batch_size)
    model.train(data, epochs=3)
    results = [list(result) for result in model.train(data, epochs=3)]
    if not plain:
        assert isinstance(data.tape, TapedBatches), data.tape
    return {"results": results, "weights": model.state_dict()["weights"]}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name, monkeypatch):
    plain, taped = (trained(name, plain, monkeypatch) for plain in (True, False))
    assert_close(taped, plain, name)


OPTIONS = {
    "Adam": {"optimizer": lambda: Adam(0.05)},
    "decay": {"optimizer": lambda: SGD(0.5, GeometricLR(0.5, 1), 0.1)},
    "clipped elements": {"clip_grad_value": lambda: 0.01},
    "clipped norm": {"clip_grad_norm": lambda: 0.01},
    "batches": {"batch_size": 3},
    "logits": {"error_function": CrossEntropy},
    "probabilities": {"error_function": lambda: CrossEntropy(with_logits=False)},
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_options_of_training(kind, monkeypatch):
    options = OPTIONS[kind]
    plain, taped = (trained("XOR, naive", p, monkeypatch, **options) for p in (True, False))
    assert_close(taped, plain, kind)


def test_weights_that_are_loaded_later_are_read(monkeypatch):
    rules, samples, own = CASES["XOR, naive"](edgewise.neuralogic)
    model = Model()
    model.add_rules(rules)
    model.build(Settings(**{"optimizer": SGD(0.1), **own}))
    data = model.build_dataset(Dataset([Sample(q, f) for q, f in samples]))
    state = model.state_dict()
    first = model.train(data, epochs=6)
    assert isinstance(data.tape, TapedBatches)
    model.load_state_dict(state)
    assert_close([list(r) for r in model.train(data, epochs=6)], [list(r) for r in first], "again")


def test_other_optimisers_train_plainly_and_say_why():
    class Other(SGD):
        def _made(self, parameters):
            return torch.optim.RMSprop(parameters, lr=self.lr)

    rules, samples, own = CASES["XOR, naive"](edgewise.neuralogic)
    model = Model()
    model.add_rules(rules)
    model.build(Settings(**{**own, "optimizer": Other(0.1)}))
    data = model.build_dataset(Dataset([Sample(q, f) for q, f in samples]))
    before = model.state_dict()
    assert len(model.train(data, epochs=5)) == len(samples)
    assert data.tape == "a tape has gradient descent, Adam and AdamW"
    assert model.state_dict() != before


def test_many_epochs_and_no_samples():
    rules, samples, own = CASES["XOR, naive"](edgewise.neuralogic)
    model = Model()
    model.add_rules(rules)
    model.build(Settings(**{"optimizer": SGD(0.1), **own}))
    assert model.train(model.build_dataset(Dataset([])), epochs=6) == []
    data = model.build_dataset(Dataset([Sample(q, f) for q, f in samples]))
    state = model.state_dict()
    once = model.train(data, epochs=600)
    model.load_state_dict(state)
    for _ in range(6):
        parts = model.train(data, epochs=100)
    assert_close([list(r) for r in parts], [list(r) for r in once], "in parts")
