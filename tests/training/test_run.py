"""A run is a model: its folder is read back, checked, and used for its task."""

import json
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch
from tiny_runs import RECIPES, TEXTS, copied, run_of

import edgewise
from edgewise import numbers, training, zoo
from edgewise.training.runs import model_files

VERBS = ("generate", "translate", "classify", "embed")


@pytest.mark.parametrize("kind", RECIPES)
def test_a_run_is_the_model_that_was_trained(kind: str) -> None:
    folder = run_of(kind)
    recipe = training.load(folder / "recipe.toml")
    assert recipe == training.load(folder.parent / f"{kind}.toml")
    corpus = recipe.data.read(folder.parent)
    module = recipe.model.build(recipe.objective.words(corpus), corpus, 7)
    last = safetensors.torch.load_file(folder / "checkpoints/step-00000004/model.safetensors")
    module.load_state_dict(last)
    run = zoo.from_pretrained(folder)
    assert run.step == 4
    assert repr(run).startswith(f"Run({run.architecture}, to {run.task}, ")
    assert run.program == module.program.program
    batch = {n: t for n, t in corpus.batch(3, 0, 0).items() if n not in ("next", "label")}
    with torch.no_grad():
        expected = module.eval()(**batch)
        torch.testing.assert_close(run.module(**batch), expected, rtol=0, atol=0)


def test_a_run_loads_as_a_model_of_any_precision() -> None:
    tokens = numbers(torch.tensor([[1, 2, 3]]))
    single = edgewise.load(run_of("generate"))(token=tokens)
    double = zoo.from_pretrained(run_of("generate"), dtype=torch.float64).model(token=tokens)
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["translate", "recurrent"])
def test_translations_are_those_of_the_end_of_training(kind: str) -> None:
    run = zoo.from_pretrained(run_of(kind))
    texts = TEXTS["train.en"].splitlines()
    found = run.translate([text.upper() for text in texts])
    assert found == (run_of(kind) / "translations.txt").read_text().splitlines()
    assert run.translate([texts[0]], most=2) != found[:1]


def test_classes_do_not_depend_on_the_batch() -> None:
    run = zoo.from_pretrained(run_of("classify"))
    texts = ["a fine film", "dull", "bad bad bad bad bad"]
    together, alone = run.classify(texts), [run.classify([text])[0] for text in texts]
    for one, other in zip(together, alone, strict=True):
        assert one == pytest.approx(other, abs=1e-6)
        assert sum(one.values()) == pytest.approx(1)
        assert list(one.values()) == sorted(one.values(), reverse=True)


def test_pairs_of_texts_are_classified() -> None:
    run = zoo.from_pretrained(run_of("pairs"))
    (found,) = run.classify([("a dog", "the dog")])
    assert set(found) == {"same", "other"}
    assert found != run.classify([("the dog", "a dog")])[0]


def test_a_text_ends_at_its_end_token() -> None:
    run = zoo.from_pretrained(run_of("subwords"))
    assert run.table["eos_token_id"] == run.tokenizer.token_to_id("<end>")
    with torch.no_grad():
        for name, value in (("word", 0), ("out.gain", 0), ("out.bias", 100)):
            run.model.weight(name).fill_(value)
        run.model.weight("word")[run.table["eos_token_id"]] = 1
    assert run.generate("to be", most=30, temperature=1.0, seed=1) == ""


@pytest.mark.parametrize("kind", ["embed", "classify", "translate"])
def test_vectors_do_not_depend_on_the_batch(kind: str) -> None:
    run = zoo.from_pretrained(run_of(kind))
    texts = ["to be", "that", "be", "no", "to be or"] if kind == "embed" else ["a", "a dog", "long"]
    together = run.embed(texts, batch=2)
    torch.testing.assert_close(together, torch.cat([run.embed([text]) for text in texts]))
    torch.testing.assert_close(together.norm(dim=1), torch.ones(len(texts)))


def test_texts_go_on_beyond_the_context() -> None:
    run = zoo.from_pretrained(run_of("generate"))
    text = run.generate("to be", most=20)
    assert len(text) == 20
    assert text[:3] == run.generate("to be", most=3)
    for at in range(20):  # each from the last 8 characters before it
        before = ("to be" + text[:at])[-8:]
        scores = run.model(token=numbers(torch.tensor([run.rows([before])[0]])))
        assert run.tokenizer.decode([int(scores[0, -1].argmax())]) == text[at]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", VERBS)
def test_another_task_names_the_verb_that_fits(kind: str, verb: str) -> None:
    run = zoo.from_pretrained(run_of(kind))
    if verb == kind or (verb == "embed" and kind != "generate"):
        return
    with pytest.raises(edgewise.EdgewiseError, match="it does not") as found:
        getattr(run, verb)("to be" if verb == "generate" else ["to be"])
    assert found.value.code == "wrong-task"
    assert f"`{kind}`" in found.value.help


@pytest.mark.parametrize(
    ("kind", "call", "code"),
    [
        ("generate", lambda run: run.generate("to bé"), "unknown-character"),
        ("generate", lambda run: run.generate(""), "bad-decoding"),
        ("generate", lambda run: run.generate("to be or not to"), "text-too-long"),
        ("subwords", lambda run: run.translate(["to be"]), "wrong-task"),
        ("embed", lambda run: run.embed(["to be or not to"]), "text-too-long"),
        ("classify", lambda run: run.classify([""]), "bad-pretrained"),
        ("classify", lambda run: run.classify(["a"] * 2 + ["a " * 9]), "text-too-long"),
        ("classify", lambda run: run.classify("a"), "bad-text"),
        ("pairs", lambda run: run.classify(["a dog"]), "bad-text"),
        ("pairs", lambda run: run.classify([("a dog", 3)]), "bad-text"),
        ("translate", lambda run: run.translate(["a", " "]), "bad-pretrained"),
        ("translate", lambda run: run.translate(["a " * 30]), "text-too-long"),
        ("translate", lambda run: run.translate(["a"], beams=0), "bad-decoding"),
        ("translate", lambda run: run.translate(["a"], most=0), "bad-decoding"),
    ],
)
def test_bad_texts_are_refused(kind: str, call, code: str) -> None:
    with pytest.raises(edgewise.EdgewiseError) as found:
        call(zoo.from_pretrained(run_of(kind)))
    assert found.value.code == code


def test_long_texts_are_truncated_on_request() -> None:
    run = zoo.from_pretrained(run_of("classify"))
    cut = run.classify(["bad " * 9], truncate=True)
    assert cut == run.classify(["bad " * 8])


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def older(folder: Path) -> None:
    shutil.move(folder / "recipe.toml", folder / "recipe.json")
    (folder / "config.json").unlink()


def interrupted(folder: Path) -> None:
    (folder / "config.json").unlink()
    shutil.rmtree(folder / "checkpoints")


def changed_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))


def other_shape(folder: Path) -> None:
    tensors, _ = model_files.read_weights(folder)
    tensors["word"] = tensors["word"][:-1].clone()
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


def config(**changes):
    def damage(folder: Path) -> None:
        table = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(table | changes))

    return damage


DAMAGE = {
    "no weights yet": no_weights,
    "older version": older,
    "before its first step": interrupted,
    "the run has no `config.json`": lambda f: (f / "config.json").unlink(),
    "differs from its header": changed_weights,
    "the weight `word` is": other_shape,
    "`model.safetensors` is truncated": lambda f: (f / "model.safetensors").write_bytes(b"abc"),
    "`config.json` is not a JSON": lambda f: (f / "config.json").write_text('{"model'),
    "the hash of `rules.txt`": lambda f: (f / "rules.txt").write_text("a(X) :- b(X)."),
    "`rules.txt` cannot be read": lambda f: (f / "rules.txt").unlink(),
    "the hash of `tokenizer.json`": lambda f: (f / "tokenizer.json").write_text("{}"),
    "format 9": config(format=9),
    "no valid `task`": config(task=None),
    "no valid `sizes`": config(sizes={"words": -1}),
    "has no kind `gtp`": config(model={"kind": "gtp"}),
    "lacks `heads`": config(model={"kind": "gpt", "layers": 1, "size": 8}),
    "no valid `edgewise`": config(program={}),
    "`sizes` lacks `context`": config(sizes={"words": 15}),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_folder_is_refused(what: str, tmp_path: Path) -> None:
    folder = copied("generate", tmp_path)
    DAMAGE[what](folder)
    for read in (edgewise.load, zoo.from_pretrained):
        with pytest.raises(edgewise.EdgewiseError) as found:
            read(folder)
        assert found.value.code == "bad-run"
        assert what in found.value.message
        assert found.value.help


def without_end(folder: Path) -> None:
    table = json.loads((folder / "config.json").read_text())
    del table["tokens"]["end"]
    (folder / "config.json").write_text(json.dumps(table))


OTHER_TASK = {
    "`task` is 'fly'": ("generate", config(task="fly")),
    "`tokens` lacks `end`": ("translate", without_end),
    "the token `start` is 999": ("translate", config(tokens={"start": 999, "end": 0})),
    "there are 1 labels, 2 classes": ("classify", config(labels=["fine"])),
}


@pytest.mark.parametrize("what", OTHER_TASK)
def test_a_configuration_that_does_not_fit_its_task_is_refused(what: str, tmp_path: Path) -> None:
    kind, damage = OTHER_TASK[what]
    folder = copied(kind, tmp_path)
    damage(folder)
    with pytest.raises(edgewise.EdgewiseError) as found:
        zoo.from_pretrained(folder)
    assert found.value.code == "bad-run"
    assert what in found.value.message


RESUMED = ("`config.json` is not a JSON", "the run has no `config.json`", "the hash of `rules.txt`")


@pytest.mark.parametrize("what", [*RESUMED, "the hash of `tokenizer.json`"])
def test_a_damaged_run_is_not_resumed(what: str, tmp_path: Path) -> None:
    folder = copied("generate", tmp_path)
    (DAMAGE[what] if what in RESUMED else swapped)(folder)
    recipe = training.load(run_of("generate").parent / "generate.toml")
    with pytest.raises(edgewise.EdgewiseError) as found:
        list(training.train(recipe, folder))
    assert found.value.code == "bad-run"
    assert what in found.value.message


def swapped(folder: Path) -> None:
    """A valid tokenizer that gives two characters each other's ids."""
    table = json.loads((folder / "tokenizer.json").read_text())
    ids = table["model"]["vocab"]
    ids["e"], ids["t"] = ids["t"], ids["e"]
    (folder / "tokenizer.json").write_text(json.dumps(table))


def test_four_files_are_enough(tmp_path: Path) -> None:
    for name in ("config.json", "rules.txt", "tokenizer.json", "model.safetensors"):
        shutil.copy(run_of("generate") / name, tmp_path)
    expected = zoo.from_pretrained(run_of("generate")).generate("to", most=5)
    assert zoo.from_pretrained(tmp_path).generate("to", most=5) == expected
