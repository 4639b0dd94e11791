"""A run that is stopped and continued is the run that was never stopped."""

import errno
import json
import os
import pwd
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from tiny_recipe import RECIPE, TEXT, loaded

from edgewise import EdgewiseError, training
from edgewise.training.runs import checkpoint
from edgewise.training.runs.folder import rows

LIMIT = resource.RLIMIT_FSIZE


def ran(recipe, out, **more):
    return list(training.train(recipe, out, **more))


def weights(out, step=12):
    return (checkpoint.folder(out / "checkpoints", step) / checkpoint.MODEL).read_bytes()


def measures(out):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows(out / "metrics.jsonl")]


def test_a_run_leaves_metrics_checkpoints_a_plot_and_a_summary(tmp_path):
    events = ran(loaded(tmp_path), tmp_path / "run")
    assert [e.kind for e in events if e.kind != "step"] == [
        *("start", "checkpoint", "checkpoint", "evaluate", "checkpoint"),
        *("evaluate", "checkpoint", "end"),
    ]
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [8, 12]
    assert (tmp_path / "run" / "loss.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["validation loss"] == events[-1].values["validation loss"]
    assert [row["step"] for row in measures(tmp_path / "run") if "loss" in row] == [
        2,
        4,
        6,
        8,
        10,
        12,
    ]


def test_training_lowers_the_loss(tmp_path):
    text = RECIPE.replace("steps = 12", "steps = 150").replace("dropout = 0.1\n", "")
    events = ran(loaded(tmp_path, text), tmp_path / "run")
    losses = [e.values["loss"] for e in events if e.kind == "step"]
    assert losses[-1] < 0.8 * losses[0]


def test_hidden_characters_are_learned_too(tmp_path):
    model = (
        """kind = "encoder"\nlayers = 1\nheads = 2\nsize = 8\nhidden = 8\ngraph = "window(3)"\n"""
    )
    head, _, rest = RECIPE.partition("[model]\n")
    text = head + "[model]\n" + model + rest[rest.index("\n[objective]") :]
    events = ran(loaded(tmp_path, text.replace('"causal"', '"masked"')), tmp_path / "run")
    assert 0 <= events[-1].values["validation accuracy"] <= 1


def test_the_same_recipe_is_the_same_run(tmp_path):
    recipe = loaded(tmp_path)
    ran(recipe, tmp_path / "a")
    ran(recipe, tmp_path / "b")
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert measures(tmp_path / "a") == measures(tmp_path / "b")


@pytest.mark.parametrize(
    ("stop", "precision"),
    [(1, "float32"), (5, "bfloat16"), (9, "float64"), (11, "float32"), (5, "float16")],
)
def test_a_run_that_is_continued_is_the_same_bit_for_bit(tmp_path, stop, precision):
    recipe = loaded(tmp_path, RECIPE.replace("log = 2", f'log = 1\nprecision = "{precision}"'))
    ran(recipe, tmp_path / "whole")
    events = training.train(recipe, tmp_path / "cut")
    for event in events:
        if event.kind == "step" and event.step == stop:
            break
    events.close()
    torch.randn(3)  # what happens in between does not matter
    started = ran(recipe, tmp_path / "cut")[0]
    assert started.step == stop // 4 * 4
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert measures(tmp_path / "cut") == measures(tmp_path / "whole")


def test_resuming_a_run_that_ended_changes_nothing(tmp_path):
    recipe = loaded(tmp_path)
    ran(recipe, tmp_path / "run")
    before = weights(tmp_path / "run"), measures(tmp_path / "run")
    left = tmp_path / "run" / "checkpoints" / ".old-step-00000008"
    left.mkdir()  # by a kill while it was let go
    assert [e.kind for e in ran(recipe, tmp_path / "run")] == ["start", "end"]
    assert not left.exists()
    assert (weights(tmp_path / "run"), measures(tmp_path / "run")) == before


def test_a_kill_at_any_moment_loses_nothing(tmp_path):
    """`bench/kills.py` kills 30; this is the same with a smaller count."""
    script = Path(__file__).parents[2] / "bench" / "kills.py"
    command = [sys.executable, str(script), "--count", "5", "--seed", "3"]
    where = os.environ | {"OUT": str(tmp_path)}
    ended = subprocess.run(command, capture_output=True, text=True, env=where)
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.partition(":")[2].split()) == 5


def stopped(folder):
    recipe = loaded(folder)
    ran(recipe, folder / "run")
    return recipe, checkpoint.folder(folder / "run" / "checkpoints", 12)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def other_shapes(path):
    tensors = safetensors.torch.load_file(path / checkpoint.MODEL)
    name = next(iter(tensors))
    rewrite(path, {**tensors, name: torch.zeros(3)})


def another_name(path):
    tensors = safetensors.torch.load_file(path / checkpoint.MODEL)
    rewrite(path, {f"x{name}": t for name, t in tensors.items()})


def flip(path, at=0.5):
    """One bit of a file is another."""
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= 1
    path.write_bytes(data)


def another_loss(path):
    """A manifest that can be read, with another number."""
    manifest = json.loads((path / checkpoint.MANIFEST).read_text())
    manifest["numbers"]["best"] /= 2
    (path / checkpoint.MANIFEST).write_text(json.dumps(manifest))


def rewrite(path, tensors):
    """Other weights, with a manifest that agrees."""
    data = safetensors.torch.save(tensors)
    (path / checkpoint.MODEL).write_bytes(data)
    manifest = json.loads((path / checkpoint.MANIFEST).read_text())
    manifest["files"][checkpoint.MODEL] = checkpoint.digest(data)
    manifest["hash"] = checkpoint._own_hash({k: v for k, v in manifest.items() if k != "hash"})
    (path / checkpoint.MANIFEST).write_text(json.dumps(manifest))


SPOILED = {
    "cut weights": (lambda p: truncate(p / checkpoint.MODEL), "hash"),
    "cut state": (lambda p: truncate(p / checkpoint.OPTIMISER), "hash"),
    "cut manifest": (lambda p: truncate(p / checkpoint.MANIFEST), "manifest.json"),
    "a bit of weights": (lambda p: flip(p / checkpoint.MODEL), "hash"),
    "a bit of the header": (lambda p: flip(p / checkpoint.MODEL, 0.0), "hash"),
    "a bit of state": (lambda p: flip(p / checkpoint.OPTIMISER, 0.99), "hash"),
    "another loss": (another_loss, "was changed"),
    "no weights": (lambda p: (p / checkpoint.MODEL).unlink(), "cannot be read"),
    "no manifest": (lambda p: (p / checkpoint.MANIFEST).unlink(), "manifest.json"),
    "a list": (lambda p: (p / checkpoint.MANIFEST).write_text("[]"), "manifest.json"),
    "other shapes": (other_shapes, "the model"),
    "other names": (another_name, "absent"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_a_checkpoint_that_is_not_whole_is_refused(case, tmp_path):
    recipe, path = stopped(tmp_path)
    spoil, said = SPOILED[case]
    spoil(path)
    before = measures(tmp_path / "run")
    with pytest.raises(EdgewiseError) as caught:
        ran(recipe, tmp_path / "run")
    assert caught.value.code == "bad-checkpoint"
    assert said in str(caught.value)
    assert measures(tmp_path / "run") == before


def test_another_recipe_does_not_go_on(tmp_path):
    stopped(tmp_path)
    changed = loaded(tmp_path, RECIPE.replace("rate = 0.01", "rate = 0.02"))
    with pytest.raises(EdgewiseError, match=r"`training.rate` is 0.01 there, 0.02 here") as caught:
        ran(changed, tmp_path / "run")
    assert caught.value.code == "other-recipe"
    assert "recipe.toml" in caught.value.help


def test_other_data_does_not_go_on(tmp_path):
    recipe, _ = stopped(tmp_path)
    for other in (TEXT.replace("not", "now"), f"{TEXT}Ω"):  # one with a character of its own
        (tmp_path / "text.txt").write_text(other)
        with pytest.raises(EdgewiseError, match="other data") as caught:
            ran(recipe, tmp_path / "run")
        assert caught.value.code == "other-recipe"


def test_a_run_does_not_overwrite_another(tmp_path):
    recipe, _ = stopped(tmp_path)
    with pytest.raises(EdgewiseError) as caught:
        ran(recipe, tmp_path / "run", resume=False)
    assert caught.value.code == "run-exists"


def test_what_is_logged_does_not_depend_on_where_it_stopped(tmp_path):
    """A line of the metrics is the mean since the line before, also of steps before the stop."""
    recipe = loaded(tmp_path, RECIPE.replace("log = 2", "log = 5"))
    ran(recipe, tmp_path / "whole")
    events = training.train(recipe, tmp_path / "cut")
    while next(events).step < 4:
        pass
    events.close()
    ran(recipe, tmp_path / "cut")
    assert measures(tmp_path / "cut") == measures(tmp_path / "whole")


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_of_somebody_else_is_left_alone(tmp_path, resume):
    kept = tmp_path / "run" / "checkpoints" / "mine.ckpt"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    with pytest.raises(EdgewiseError, match="files of something else") as caught:
        ran(loaded(tmp_path), tmp_path / "run", resume=resume)
    assert caught.value.code == "run-exists"
    assert kept.read_text() == "mine"


def test_two_runs_do_not_share_a_folder(tmp_path):
    recipe = loaded(tmp_path)
    events = training.train(recipe, tmp_path / "run")
    while next(events).step < 4:
        pass
    with pytest.raises(EdgewiseError, match="another run") as caught:
        ran(recipe, tmp_path / "run")
    assert caught.value.code == "run-exists"
    list(events)
    assert ran(recipe, tmp_path / "run")[-1].kind == "end"


@pytest.mark.parametrize("writes", [0, 3, 9, 16])
def test_a_full_disk_stops_the_run_and_nothing_is_lost(writes, tmp_path, monkeypatch):
    """Whichever file does not fit: what is there is complete, and with space the run goes on."""
    recipe, calls, sync = loaded(tmp_path), [], os.fsync

    def full(handle):
        calls.append(handle)
        if len(calls) > writes:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EdgewiseError, match="No space left") as caught:
        ran(recipe, tmp_path / "run")
    assert caught.value.code == "not-writable"
    monkeypatch.undo()
    for step in checkpoint.steps(tmp_path / "run" / "checkpoints"):
        checkpoint.read(tmp_path / "run" / "checkpoints", step)
    ran(recipe, tmp_path / "run")
    ran(recipe, tmp_path / "plain")
    assert weights(tmp_path / "run") == weights(tmp_path / "plain")
    assert measures(tmp_path / "run") == measures(tmp_path / "plain")


def test_a_file_that_does_not_fit_is_not_half_written(tmp_path):
    """By a limit of the system: the optimiser's state is too large, what is before it is not."""
    recipe = loaded(tmp_path)
    ran(recipe, tmp_path / "plain")
    last = checkpoint.folder(tmp_path / "plain" / "checkpoints", 12)
    most, before = (last / checkpoint.OPTIMISER).stat().st_size - 1, resource.getrlimit(LIMIT)
    resource.setrlimit(LIMIT, (most, before[1]))
    try:
        with pytest.raises(EdgewiseError, match="File too large") as caught:
            ran(recipe, tmp_path / "run")
    finally:
        resource.setrlimit(LIMIT, before)
    assert caught.value.code == "not-writable"
    found = [p.name for p in (tmp_path / "run").rglob("*") if p.name.startswith(".")]
    assert not found
    ran(recipe, tmp_path / "run")
    assert weights(tmp_path / "run") == weights(tmp_path / "plain")


@contextmanager
def read_only(folder):
    """A folder that this process may not write to; the superuser may, so it is somebody else."""
    for parent in (folder, *folder.parents):
        if parent.owner() == pwd.getpwuid(os.getuid()).pw_name and parent != parent.parent:
            parent.chmod(parent.stat().st_mode | 0o055)
    folder.chmod(0o555)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o755)


@pytest.mark.parametrize("there", [False, True])
def test_a_read_only_folder_is_an_error_and_is_left_as_it_was(there, tmp_path):
    """A new run inside it, and one that would continue."""
    recipe, out = loaded(tmp_path), tmp_path / "runs" / "one"
    out.parent.mkdir()
    if there:
        events = training.train(recipe, out)
        while next(events).step < 6:
            pass
        events.close()
    before = sorted(tmp_path.rglob("*"))
    with read_only(out if there else out.parent), pytest.raises(EdgewiseError) as caught:
        ran(recipe, out)
    assert caught.value.code == "not-writable"
    assert "ermission denied" in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert ran(recipe, out)[0].step == (4 if there else 0)


def test_a_file_is_no_folder(tmp_path):
    recipe = loaded(tmp_path)
    (tmp_path / "run").write_text("mine")
    with pytest.raises(EdgewiseError) as caught:
        ran(recipe, tmp_path / "run")
    assert caught.value.code == "not-writable"
    assert (tmp_path / "run").read_text() == "mine"


def test_a_loss_that_is_no_number_stops_the_run(tmp_path):
    text = RECIPE.replace("rate = 0.01", "rate = 1e30\nclip = 0.0").replace("log = 2", "log = 100")
    with pytest.raises(EdgewiseError) as caught:
        ran(loaded(tmp_path, text), tmp_path / "run")
    assert caught.value.code == "diverged"
    for step in checkpoint.steps(tmp_path / "run" / "checkpoints"):
        state = checkpoint.read(tmp_path / "run" / "checkpoints", step)
        assert all(t.isfinite().all() for t in state.model.values())


def test_the_best_model_is_measured_where_the_recipe_says_so(tmp_path, monkeypatch):
    """Also after a stop. The loss is made the distance to the weights of step 5."""
    text = RECIPE.replace("evaluate = 6", 'evaluate = 1\nmeasured = "best"')
    recipe, found = loaded(tmp_path, text), []
    until = replace(recipe, training=replace(recipe.training, steps=5, schedule="constant"))
    ran(until, tmp_path / "until", data=tmp_path)
    best = safetensors.torch.load(weights(tmp_path / "until", 5))

    def distance(self, model, batch, means):
        held = model.state_dict()
        means.add("loss", sum((held[name] - best[name]).abs().sum() for name in best), 1)

    def kept(self, model, corpus, device):
        found.append({name: weight.clone() for name, weight in model.state_dict().items()})
        return {}

    monkeypatch.setattr(type(recipe.objective), "measure", distance)
    monkeypatch.setattr(type(recipe.objective), "finish", kept)
    recipe = replace(recipe, training=replace(recipe.training, schedule="constant"))
    events = ran(recipe, tmp_path / "run", data=tmp_path)
    losses = {e.step: e.values["validation loss"] for e in events if e.kind == "evaluate"}
    assert losses[5] == 0 < losses[12]
    for step in (12, 8):  # as if stopped between 8 and 12, and after the end
        shutil.rmtree(checkpoint.folder(tmp_path / "run" / "checkpoints", step))
        ran(recipe, tmp_path / "run", data=tmp_path)
    assert len(found) == 3
    for measured in found:
        assert measured.keys() == best.keys()
        assert all(torch.equal(measured[name], best[name]) for name in best)
    (tmp_path / "run" / "model.safetensors").write_bytes(b"")
    with pytest.raises(EdgewiseError, match="truncated or corrupt"):
        ran(recipe, tmp_path / "run", data=tmp_path)


def test_weights_that_are_no_numbers_are_not_kept(tmp_path):
    """The loss of the last step is fine, what it leaves is not."""
    text = RECIPE.replace("rate = 0.01", "rate = 1e35\nclip = 0.0").replace(
        "warmup = 2", "warmup = 0"
    )
    with pytest.raises(EdgewiseError) as caught:
        ran(loaded(tmp_path, text.replace("steps = 12", "steps = 1")), tmp_path / "run")
    assert caught.value.code == "diverged"
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [0]
