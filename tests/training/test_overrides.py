"""Settings of one run: typed, checked, and part of the run's recipe."""

import pytest
from tiny_recipe import put

from edgewise import EdgewiseError, training
from edgewise.training.overrides import folder_name, value_of

GOOD = {
    "training.seed=2": ("training", "seed", 2),
    "training.rate = 1e-2": ("training", "rate", 0.01),
    "training.deterministic=true": ("training", "deterministic", True),
    "model.graph=window(4) | global_tokens(1)": ("model", "graph", "window(4) | global_tokens(1)"),
    'model.graph=["window(2)", "full()"]': ("model", "graph", ["window(2)", "full()"]),
    "model.graph=@sub(I, J, D), @leq(D, 2)": ("model", "graph", "@sub(I, J, D), @leq(D, 2)"),
    "model.norm=none": ("model", "norm", "none"),
    "model.scale=0.5": ("model", "scale", 0.5),
    "model.scale=2": ("model", "scale", 2.0),
    "model.feed_forward=16": ("model", "feed_forward", 16),
    "model.feed_forward=swiglu": ("model", "feed_forward", "swiglu"),
    "model.aggregation=max": ("model", "aggregation", "max"),
    "model.positions=sinusoidal": ("model", "positions", "sinusoidal"),
}


@pytest.mark.parametrize("setting", GOOD)
def test_a_setting_changes_one_key(setting, tmp_path):
    path = put(tmp_path)
    section, key, value = GOOD[setting]
    before, after = training.load(path).json(), training.load(path, [setting]).json()
    assert after[section][key] == value
    before[section][key] = value
    assert after == before


BAD = {
    "model.grph=full()": "did you mean `graph`?",
    "modle.graph=full()": "did you mean `model`?",
    "graph=full()": "does not set a key",
    "model.graph": "does not set a key",
    "training.seed=two": "not an integer",
    "training.seed=-1": "at least 0",
    "model.graph=windw(3)": "did you mean `window`?",
    "model.graph=per_layer(full(), full())": "in turns",
    "model.norm=pots": "did you mean `post`?",
    "model.scale=half": "sqrt, none or a number",
    "model.scale=nan": "give a finite number",
    "model.scale=-inf": "give a finite number",
    "model.feed_forward=swigloo": "did you mean `swiglu`?",
    "model.positions=rotatory": "did you mean `rotary`?",
    "model.aggregation=median": "did you mean `mean`?",
}


@pytest.mark.parametrize("setting", BAD)
def test_a_mistake_is_shown_in_the_setting(setting, tmp_path):
    with pytest.raises(EdgewiseError) as caught:
        training.load(put(tmp_path), ["training.steps=3", setting])
    assert caught.value.code == "bad-recipe"
    assert BAD[setting] in str(caught.value)
    assert setting in str(caught.value)


def test_the_last_of_equal_settings_wins(tmp_path):
    recipe = training.load(put(tmp_path), ["training.seed=1", "training.seed=5"])
    assert recipe.training.seed == 5


def test_text_that_would_be_more_than_a_value_is_text():
    assert value_of("1\nother = 2") == "1\nother = 2"


def test_runs_with_settings_have_folders_of_their_own():
    one = folder_name("gpt", ["model.graph=window(64)"])
    assert one == "gpt-graph=window-64"
    assert folder_name("gpt", []) == "gpt"
    assert "/" not in folder_name("gpt", ["data.path=../x/y"])
