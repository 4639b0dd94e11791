"""Runs side by side, at equal steps and at equal FLOPs."""

import json
import shutil
from pathlib import Path

import pytest
from tiny_recipe import put

from edgewise import EdgewiseError, training
from edgewise.cli import main
from edgewise.training.comparison import compared, differing, read_record

SETTINGS = ["training.steps=6", "training.evaluate=2"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    path = put(folder)
    made = {
        "own": [],
        "window": ["model.graph=window(1)"],
        "wide": ["model.feed_forward=256", "training.steps=4"],
        "mean": ["model.aggregation=mean", "model.graph=window(1)"],
    }
    for name, more in made.items():
        recipe = training.load(path, [*SETTINGS, *more])
        list(training.train(recipe, folder / name))
    return {name: folder / name for name in made}


def test_what_differs_and_what_it_cost(runs):
    records = [read_record(runs[name]) for name in ("own", "window", "mean")]
    assert set(differing(records)) == {"model.graph", "model.aggregation"}
    own, window, mean = compared(records)
    assert own["model.graph"] == ["window(2)", "strided(3)"]
    assert window["model.graph"] == mean["model.graph"] == "window(1)"
    n, heads = 8, 2
    assert window["pairs"] == heads * (2 * n - 1)
    assert mean["pairs"] == window["pairs"]
    assert mean["parameters"] < window["parameters"] == own["parameters"]
    assert all(
        row["steps"] == 6 and row["FLOPs"] > 0 and row["seconds"] > 0 for row in compared(records)
    )


def test_losses_are_compared_where_the_shortest_run_is(runs):
    records = [read_record(runs[name]) for name in ("own", "wide")]
    own, wide = compared(records)
    assert own["validation loss"] == dict(records[0].losses())[4]
    assert wide["validation loss"] == dict(records[1].losses())[4]
    assert records[1].cost["step_flops"] > 2 * records[0].cost["step_flops"]
    at_flops = compared(records, "flops")
    assert at_flops[0]["validation loss"] == dict(records[0].losses())[6]
    assert (
        at_flops[1]["validation loss"] != wide["validation loss"]
        or at_flops[1]["validation loss"] is None
    )


def test_the_command_prints_a_table_a_picture_and_json(runs, tmp_path, capsys):
    paths = [str(path) for path in runs.values()]
    assert main(["compare", *paths, "--plot", str(tmp_path / "loss.svg")]) == 0
    shown = capsys.readouterr().out
    assert "window(1)" in shown
    assert "FLOPs" in shown
    assert "<svg" in (tmp_path / "loss.svg").read_text()
    assert main(["compare", *paths, "--by", "flops", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in rows] == paths


def test_a_picture_that_cannot_be_written_is_an_error(runs, tmp_path, capsys):
    for name, words in (("no/loss.png", "no such folder"), ("loss.jpg", ".png or .svg")):
        assert main(["compare", str(runs["own"]), "--plot", str(tmp_path / name)]) == 2
        assert words in capsys.readouterr().err


def test_losses_of_other_data_are_pointed_out(runs, tmp_path, capsys):
    other = Path(shutil.copytree(runs["own"], tmp_path / "other"))
    recipe = (other / "recipe.toml").read_text()
    (other / "recipe.toml").write_text(recipe.replace('"characters"', '"words"'))
    assert main(["compare", str(runs["own"]), str(runs["window"])]) == 0
    assert not capsys.readouterr().err
    assert main(["compare", str(runs["own"]), str(other)]) == 0
    assert "differ in `data.tokenizer`: their losses may not" in capsys.readouterr().err


def test_a_run_that_has_not_ended_is_compared_too(runs, tmp_path):
    (tmp_path / "begun").mkdir()
    for name in ("recipe.toml", "config.json"):
        (tmp_path / "begun" / name).write_bytes((runs["own"] / name).read_bytes())
    begun, own = compared([read_record(tmp_path / "begun"), read_record(runs["own"])])
    assert begun["steps"] == 0
    assert begun["validation loss"] is None
    assert own["validation loss"] is not None


def test_a_folder_without_a_run_or_with_a_damaged_one_is_refused(runs, tmp_path):
    with pytest.raises(EdgewiseError, match="not the folder of a run"):
        read_record(tmp_path)
    for name in ("recipe.toml", "config.json"):
        (tmp_path / name).write_bytes((runs["own"] / name).read_bytes())
    (tmp_path / "summary.json").write_text('{"steps": ')
    with pytest.raises(EdgewiseError, match="truncated or corrupt") as caught:
        read_record(tmp_path)
    assert caught.value.code == "bad-run"
