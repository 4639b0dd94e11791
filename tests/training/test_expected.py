"""What people expect of training: accumulation, averages, early stopping, interruption, logs."""

import csv
import json
import threading
from dataclasses import replace

import pytest
import safetensors.torch
import torch
from test_loop import measures, ran, weights
from tiny_recipe import RECIPE, loaded

from edgewise import EdgewiseError, training
from edgewise.training.optimiser import WeightAverage
from edgewise.training.runs import checkpoint

MORE = RECIPE.replace("log = 2", "log = 1").replace("dropout = 0.1\n", "")


def with_(**options):
    return MORE + "".join(f"{key} = {value}\n" for key, value in options.items())


def used(out, name="model.safetensors"):
    return safetensors.torch.load_file(out / name)


def test_accumulated_batches_are_one_large_batch(tmp_path, monkeypatch):
    """Two batches of 3 give the gradient of one batch of 6 with the same examples."""
    recipe = loaded(tmp_path, with_(accumulate=2))
    ran(recipe, tmp_path / "two")
    large = loaded(tmp_path, MORE.replace("batch = 3", "batch = 6"))
    corpus = type(large.data.read(tmp_path))
    batch = corpus.batch

    def both(self, size, seed, step):
        halves = [batch(self, 3, seed, 2 * step + k) for k in (0, 1)]
        return {name: torch.cat([half[name] for half in halves]) for name in halves[0]}

    monkeypatch.setattr(corpus, "batch", both)
    ran(large, tmp_path / "one")
    for a, b in zip(used(tmp_path / "two").values(), used(tmp_path / "one").values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_the_average_follows_the_weights():
    model = torch.nn.Linear(1, 1, bias=False)
    average, wanted = WeightAverage(model, 0.9), model.weight.item()
    for step in range(50):
        with torch.no_grad():
            model.weight += step
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        wanted = decay * wanted + (1 - decay) * model.weight.item()
    assert average.values["weight"].item() == pytest.approx(wanted, rel=1e-5)
    before = model.weight.item()
    with average.applied(model):
        assert model.weight.item() == average.values["weight"].item()
    assert model.weight.item() == before


def test_the_average_is_evaluated_saved_and_resumed(tmp_path):
    recipe = loaded(tmp_path, with_(ema=0.9))
    ran(recipe, tmp_path / "run")
    events = training.train(recipe, tmp_path / "cut")
    while next(events).step < 7:
        pass
    events.close()
    ran(recipe, tmp_path / "cut")
    assert measures(tmp_path / "cut") == measures(tmp_path / "run")
    last = checkpoint.read(tmp_path / "run" / "checkpoints", 12)
    found = used(tmp_path / "run")
    averaged = {name.removeprefix("program."): t for name, t in last.average.items()}
    assert averaged.keys() <= found.keys()  # weights that do not learn have no average
    assert all(torch.equal(found[name], averaged[name]) for name in averaged)
    assert any(not torch.equal(last.average[name], last.model[name]) for name in last.average)
    plain = loaded(tmp_path, MORE)
    ran(plain, tmp_path / "plain")
    assert weights(tmp_path / "run") == weights(tmp_path / "plain")  # it changes no step
    assert measures(tmp_path / "run") != measures(tmp_path / "plain")


def test_a_run_without_improvement_stops_early_and_has_its_best_weights(tmp_path):
    text = (
        with_(patience=2)
        .replace("evaluate = 6", "evaluate = 1")
        .replace("steps = 12", "steps = 90")
    )
    text = text.replace("rate = 0.01", "rate = 3.0").replace("warmup = 2", "warmup = 0")
    recipe = loaded(tmp_path, text)
    events = ran(recipe, tmp_path / "run")
    losses = [e.values["validation loss"] for e in events if e.kind == "evaluate"]
    best = losses.index(min(losses))
    assert events[-1].kind == "end"
    assert events[-1].step == len(losses) == best + 3 < 90
    assert [e.kind for e in ran(recipe, tmp_path / "run")] == ["start", "end"]
    best_weights = used(tmp_path / "run", "best.safetensors")
    assert any(not torch.equal(best_weights[n], t) for n, t in used(tmp_path / "run").items())


def test_an_interrupted_run_saves_and_continues(tmp_path):
    recipe, stop = loaded(tmp_path), threading.Event()
    events = training.train(recipe, tmp_path / "cut", stop=stop)
    seen = []
    for event in events:
        seen.append((event.kind, event.step))
        if event.step == 6:
            stop.set()
    assert seen[-2:] == [("checkpoint", 6), ("interrupted", 6)]
    assert (tmp_path / "cut" / "loss.svg").exists()
    assert ran(recipe, tmp_path / "cut")[0].step == 6
    ran(recipe, tmp_path / "run")
    assert weights(tmp_path / "cut") == weights(tmp_path / "run")
    assert measures(tmp_path / "cut") == measures(tmp_path / "run")


def test_logs_are_a_table_a_picture_and_events(tmp_path):
    recipe = loaded(tmp_path)
    events = training.train(recipe, tmp_path / "run", tensorboard=True)
    while next(events).step < 7:
        pass
    events.close()
    ran(recipe, tmp_path / "run", tensorboard=True)
    with open(tmp_path / "run" / "metrics.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [int(row["step"]) for row in table] == [2, 4, 6, 8, 10, 12]
    assert [bool(row["validation loss"]) for row in table] == [False, False, True] * 2
    assert b"<svg" in (tmp_path / "run" / "loss.svg").read_bytes()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [one.step for one in found.Scalars("validation/loss")] == [6, 12]
    assert found.Scalars("loss")[-1].value == pytest.approx(float(table[-1]["loss"]), rel=1e-5)


def test_the_cost_of_a_run(tmp_path):
    recipe = loaded(tmp_path, with_(ema=0.9, accumulate=2))
    cost = training.estimate(recipe)
    start = next(training.train(recipe, tmp_path / "run"))
    assert cost.parameters == start.values["parameters"]
    assert cost.memory["optimiser"] == 8 * cost.parameters
    assert cost.memory["average"] == 4 * cost.parameters
    dense = 2 * cost.parameters * 8 * 3 * 2 * 3  # FLOPs of products with all weights
    assert 0.3 * dense < cost.step_flops < 3 * dense
    assert cost.memory["activations"] > 3 * 8 * 8 * 4


def test_flops_of_a_step_do_not_depend_on_ranks(tmp_path):
    recipe = loaded(tmp_path, with_())
    ran(recipe, tmp_path / "run")
    shared = replace(recipe, distributed=replace(recipe.distributed, ranks=3))
    written = json.loads((tmp_path / "run" / "cost.json").read_text())["step_flops"]
    assert training.estimate(recipe).step_flops == written
    assert training.estimate(shared).step_flops == written


def test_a_damaged_average_is_refused(tmp_path):
    recipe = loaded(tmp_path, with_(ema=0.9))
    ran(recipe, tmp_path / "run")
    path = checkpoint.folder(tmp_path / "run" / "checkpoints", 12) / checkpoint.AVERAGE
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(EdgewiseError, match=r"hash of `average\.safetensors`"):
        ran(recipe, tmp_path / "run")


def test_a_step_does_not_walk_the_modules_of_the_model(tmp_path, monkeypatch):
    """With many small modules that takes longer than launching what they compute."""
    walk, walks = torch.nn.Module.named_modules, []

    def counted(module, *args, **options):
        walks[-1] += 1
        return walk(module, *args, **options)

    monkeypatch.setattr(torch.nn.Module, "named_modules", counted)
    for steps in (1, 3):
        walks.append(0)
        text = RECIPE.replace("steps = 12", f"steps = {steps}\nema = 0.9")
        ran(loaded(tmp_path, text), tmp_path / f"{steps}")
    assert walks[0] == walks[1] > 0
