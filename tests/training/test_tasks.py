"""Every task from own data to its end, interrupted and continued: one small run each."""

import json

import pytest
from test_loop import measures, ran

from edgewise import EdgewiseError, training, zoo
from edgewise.training import evaluation

FILMS = [
    {"a": f"a {w} film", "b": f"number {i}", "label": w}
    for i in range(12)
    for w in ("fine", "dull")
]
PAIRS = [
    {"translation": {"en": f"{n} dogs run", "de": f"{n} hunde laufen"}}
    for n in ("two", "ten", "six")
] * 8
TRAINING = """
[training]
steps = 6
batch = 4
log = 1
evaluate = 3
checkpoint = 3
warmup = 1
"""
SMALL = "layers = 1\nheads = 2\nsize = 8\n"
TASKS = {
    "causal": f"""
[data]
kind = "text"
text = "a"
path = "films.jsonl"
context = 4
pieces = 300
[model]
kind = "gpt"
{SMALL}
[objective]
kind = "causal"
""",
    "masked": f"""
[data]
kind = "text"
text = "a"
path = "films.jsonl"
tokenizer = "wordpiece"
held_out = 0.5
context = 4
pieces = 300
[model]
kind = "encoder"
hidden = 8
{SMALL}
[objective]
kind = "masked"
share = 0.5
""",
    "pairs of sentences": f"""
[data]
kind = "labelled"
text = "a"
second = "b"
path = "films.jsonl"
longest = 12
batch_tokens = 32
tokenizer = "unigram"
pieces = 300
[model]
kind = "classifier"
hidden = 8
{SMALL}
[objective]
kind = "classification"
""",
    "translation": f"""
[data]
kind = "pairs"
path = "pairs.jsonl"
source = "en"
target = "de"
pieces = 300
longest = 16
batch_tokens = 64
tokenizer = "byte_bpe"
[model]
kind = "translator"
hidden = 8
{SMALL}
[objective]
kind = "translation"
beams = 2
alpha = [0.6, 1]
""",
}


@pytest.mark.parametrize("task", TASKS)
def test_a_task_from_its_data_to_its_end(task, tmp_path):
    for name, rows in (("films", FILMS), ("pairs", PAIRS)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(text)
    (tmp_path / "recipe.toml").write_text(TASKS[task] + TRAINING)
    recipe = training.load(tmp_path / "recipe.toml")
    events = training.train(recipe, tmp_path / "cut")
    while next(events).step < 4:
        pass
    events.close()
    ran(recipe, tmp_path / "cut")
    (*_, end) = ran(recipe, tmp_path / "run")
    assert measures(tmp_path / "cut") == measures(tmp_path / "run")
    assert end.values["validation loss"] > 0
    if task == "translation":
        assert end.values["alpha"] in (0.6, 1)
        assert 0 <= end.values["validation bleu"] <= 100
        written = (tmp_path / "run" / "translations.txt").read_text().split("\n")[:-1]
        assert len(written) == 2
        run = zoo.from_pretrained(tmp_path / "run")  # with the penalty that was best
        assert run.table["objective"]["alpha"] == end.values["alpha"]
        sources, _ = zip(*recipe.data.read(tmp_path).texts["validation"], strict=True)
        assert [" ".join(text.splitlines()) for text in run.translate(list(sources))] == written


def test_a_translator_is_evaluated_on_the_rows_that_its_training_measured(tmp_path):
    trained = [
        {"translation": {"en": f"{n} dogs run", "de": f"{n} hunde laufen im gras"}}
        for n in ("two", "ten", "six")
    ] * 8
    rows = [*trained[:3], {"translation": {"en": "two dogs run " * 40, "de": "zwei"}}] * 2
    rows += [{"translation": {"en": " ", "de": "leer"}}]
    for name, some in (("train", trained), ("validation", rows)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    text = TASKS["translation"].replace("pairs.jsonl", ".").replace('"byte_bpe"', '"wordpiece"')
    (tmp_path / "recipe.toml").write_text(text + TRAINING.replace("= 6", "= 60\nrate = 1e-2"))
    (*_, end) = ran(training.load(tmp_path / "recipe.toml"), tmp_path / "run")
    run = zoo.from_pretrained(tmp_path / "run")
    wanted = end.values["validation bleu"]
    found = evaluation.on_recipe(run, tmp_path / "run", tmp_path, "validation")
    assert wanted > 1
    assert found["bleu"] == pytest.approx(wanted)
    written = (tmp_path / "run" / "translations.txt").read_text().split("\n")[3]
    assert run.translate(["two dogs run " * 40], truncate=True) == [written]
    (tmp_path / "validation.jsonl").write_text("\n".join(map(json.dumps, rows[:-1])))
    found = evaluation.on_file(run, tmp_path / "validation.jsonl", tmp_path / "run")
    assert found["bleu"] > 1


def test_a_classifier_is_evaluated_on_the_labels_that_it_was_trained_on(tmp_path):
    rows = [{"a": w["a"], "b": "x", "label": w["label"] == "fine"} for w in FILMS]
    (tmp_path / "films.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "recipe.toml").write_text(TASKS["pairs of sentences"] + TRAINING)
    ran(training.load(tmp_path / "recipe.toml"), tmp_path / "run")
    run = zoo.from_pretrained(tmp_path / "run")
    found = evaluation.on_file(run, tmp_path / "films.jsonl", tmp_path / "run")
    assert 0 <= found["accuracy"] <= 1


def test_a_masked_model_without_masks_is_refused(tmp_path):
    (tmp_path / "recipe.toml").write_text(TASKS["masked"].replace("share = 0.5", "share = 0.0"))
    with pytest.raises(EdgewiseError, match="no position is masked"):
        training.load(tmp_path / "recipe.toml", ["training.steps=1", "training.batch=1"])


def test_a_run_that_did_not_end_translates_by_the_first_of_several_penalties(tmp_path):
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    (tmp_path / "recipe.toml").write_text(TASKS["translation"] + TRAINING)
    events = training.train(training.load(tmp_path / "recipe.toml"), tmp_path / "run")
    while next(events).step < 4:
        pass
    events.close()
    (text,) = zoo.from_pretrained(tmp_path / "run").translate(["a dog"])
    assert isinstance(text, str)


@pytest.mark.parametrize("option", ['aggregation = "sum"', 'graph = "full() - window(1)"'])
def test_a_language_model_without_a_cache_generates(option, tmp_path):
    rows = "".join(json.dumps(row) + "\n" for row in FILMS)
    (tmp_path / "films.jsonl").write_text(rows)
    text = TASKS["causal"].replace("layers = 1", f"layers = 1\n{option}")
    (tmp_path / "recipe.toml").write_text(text + TRAINING)
    ran(training.load(tmp_path / "recipe.toml"), tmp_path / "run")
    run = zoo.from_pretrained(tmp_path / "run")
    found = run.generate("a f", most=3)
    assert len(found) == 3
    assert run.generate("a f" + found[:1], most=2) == found[1:]
