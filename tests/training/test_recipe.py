"""Recipes are strict: what they do not know is an error with its line and the nearest name."""

from pathlib import Path

import pytest
from tiny_recipe import RECIPE, loaded, put

from edgewise import EdgewiseError, training

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_recipes_of_the_repository_load(path):
    recipe = training.load(path)
    assert recipe.training.steps > 0
    assert recipe.json()["model"]["kind"]


def test_what_is_not_said_has_a_default(tmp_path):
    recipe = loaded(tmp_path)
    assert recipe.training.schedule == "cosine"
    assert recipe.training.rate == 0.01
    data = recipe.json()["data"]
    assert (data["kind"], data["path"], data["held_out"]) == ("text", "text.txt", 0.1)


BAD = {
    "a kind that is a list": ('kind = "gpt"', 'kind = ["gpt"]', "kind", "has no kind"),
    "a rate beyond numbers": (
        "rate = 0.01",
        "rate = 1e38",
        "rate",
        "must be at least 0.0 and below",
    ),
    # what is replaced by what: which line is shown, what is said
    "a misspelt key": ("layers =", "layres =", "layres", "did you mean `layers`?"),
    "a misspelt section": ("[training]", "[trainig]", "[trainig]", "did you mean `training`?"),
    "a misspelt kind": ('"gpt"', '"gtp"', "kind", "did you mean `gpt`?"),
    "a misspelt choice": (
        "warmup = 2",
        'schedule = "cosin"',
        "schedule",
        "did you mean `cosine`?",
    ),
    "no section": ("[objective]\nkind", "[data.objective]\nkind", "", "`[objective]`"),
    "no kind": ('kind = "gpt"\n', "", "[model]", "needs a `kind`"),
    "a key that is missing": ("layers = 1\n", "", "[model]", "lacks `layers`"),
    "a text for a number": ("steps = 12", 'steps = "12"', "steps", "an integer"),
    "a float for a count": ("steps = 12", "steps = 12.5", "steps", "an integer"),
    "true for a count": ("steps = 12", "steps = true", "steps", "an integer"),
    "a number for a text": ('path = "text.txt"', "path = 3", "path", "a string"),
    "too small": ("batch = 3", "batch = 0", "batch", "at least 1"),
    "too large": ("dropout = 0.1", "dropout = 1.0", "dropout", "below 1.0"),
    "beyond all machines": ("size = 8", "size = 10000000000000000000", "size", "below 2147483648"),
    "heads that do not fit": ("heads = 2", "heads = 3", "heads", "divisor of 8"),
    "a graph that is none": ('"window(2)"', '"windw(2)"', "graph", "window"),
    "a number for a graph": ('"window(2)"', "2", "graph", "not one pattern"),
    "more graphs than heads": ('"window(2)", ', '"window(2)", "full()", ', "graph", "divides 2"),
    "no TOML": ("steps = 12", "steps = = 12", "steps", "not TOML"),
    "a key twice": ("steps = 12", "steps = 12\nsteps = 13", "steps", "not TOML"),
    "a model for something else": ('kind = "causal"', 'kind = "masked"', "kind", "encoder"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_shown_with_its_line(case, tmp_path):
    old, new, line, said = BAD[case]
    assert old in RECIPE
    with pytest.raises(EdgewiseError) as caught:
        loaded(tmp_path, RECIPE.replace(old, new))
    assert caught.value.code == "bad-recipe"
    assert said in str(caught.value)
    assert caught.value.help
    assert line in caught.value.span.text


def test_all_mistakes_come_together(tmp_path):
    text = RECIPE.replace("layers", "layres").replace("steps = 12", "steps = -1")
    with pytest.raises(EdgewiseError) as caught:
        loaded(tmp_path, text)
    assert len(caught.value.errors) >= 2


@pytest.mark.parametrize("text", [None, b"\xff\xfe", ""])
def test_a_file_that_is_no_recipe(text, tmp_path):
    path = tmp_path / "recipe.toml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(EdgewiseError) as caught:
        training.load(path)
    assert caught.value.code == "bad-recipe"


DATA = {
    "no file": (lambda folder: (folder / "text.txt").unlink(), "cannot read the file"),
    "no text": (lambda folder: (folder / "text.txt").write_bytes(b"\xff\xfe"), "UTF-8"),
    "one character": (lambda folder: (folder / "text.txt").write_text("a" * 400), "at least two"),
    "too little": (lambda folder: (folder / "text.txt").write_text("short"), "too few"),
    "a broken archive": (
        lambda folder: (
            (folder / "text.txt").unlink(),
            (folder / "text.txt.gz").write_bytes(b"\x1f\x8b\x08broken"),
        ),
        "gzip",
    ),
}


@pytest.mark.parametrize("case", DATA)
def test_bad_data_stops_a_run_before_it_starts(case, tmp_path):
    spoil, said = DATA[case]
    recipe = training.load(put(tmp_path))
    spoil(tmp_path)
    with pytest.raises(EdgewiseError) as caught:
        list(training.train(recipe, tmp_path / "run"))
    assert caught.value.code == "bad-data"
    assert said in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_the_path_of_a_recipe_is_not_a_recipe(tmp_path):
    path = put(tmp_path)
    for use in (
        lambda: list(training.train(path, tmp_path / "run")),
        lambda: training.estimate(path),
    ):
        with pytest.raises(EdgewiseError, match="expected a recipe") as caught:
            use()
        assert "training.load" in caught.value.help
    with pytest.raises(EdgewiseError, match="a string, not int"):
        training.load(3)
