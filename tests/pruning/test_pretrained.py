"""Checkpoints without some heads: written, read back, and read by transformers where it can."""

import json

import pytest
import torch

from edgewise import EdgewiseError, load, zoo
from edgewise.inputs.kinds import numbers
from edgewise.pruning import importance, prune
from edgewise.zoo import bert, gpt2, llama, vit
from edgewise.zoo.pretrained import save_pretrained

SIZES = {"size": 8, "heads": 4, "hidden": 8, "layers": 2}
TOKENS = {"vocabulary": 11, "length": 9}
TEXT = {"token": numbers(torch.tensor([[1, 2, 3, 4]]))}
BERT = {
    "mask": torch.ones(1, 4, 1, dtype=torch.float64),
    "segment": numbers(torch.zeros(1, 4, dtype=torch.int64)),
}
MODELS = {
    "bert": (bert, bert.Config(**SIZES, **TOKENS), "out", TEXT | BERT),
    "gpt2": (gpt2, gpt2.Config(**SIZES, **TOKENS), "logits", TEXT),
    "llama": (llama, llama.Config(**SIZES, **TOKENS, groups=2, d=4), "logits", TEXT),
    "vit": (
        vit,
        vit.Config(image=4, patch=2, channels=1, classes=3, **SIZES),
        "logits",
        {"pixel": torch.ones(1, 4, 4, dtype=torch.float64)},
    ),
}


def checkpoint(name, folder):
    module, config, _, _ = MODELS[name]
    save_pretrained(folder, module, config, module.program(config).weights(seed=0))
    return zoo.from_pretrained(folder, dtype=torch.float64)


@pytest.mark.parametrize("name", ["bert", "gpt2", "vit"])
def test_it_is_written_and_read_back(name, tmp_path):
    _, _, relation, inputs = MODELS[name]
    model = checkpoint(name, tmp_path / "full")
    small = prune(prune(model, {0: [0, 1, 2, 3], 1: [2]}), {1: [0]})
    assert small.pruned == {0: (0, 1, 2, 3), 1: (0, 2)}
    small.save_pretrained(tmp_path / "small")
    said = json.loads((tmp_path / "small" / "config.json").read_text())["pruned_heads"]
    assert said == {"0": [0, 1, 2, 3], "1": [0, 2]}
    again = zoo.from_pretrained(tmp_path / "small", dtype=torch.float64)
    expected = small.compile(relation)(**inputs)
    assert torch.equal(again.compile(relation)(**inputs), expected)
    ours = prune(model.compile(relation), {0: [0, 1, 2, 3], 1: [0, 2]})
    torch.testing.assert_close(ours(**inputs), expected)
    assert load(tmp_path / "small").weight("layer.1.q.weight").shape == (2, 2, 8)


def test_transformers_reads_layers_with_equally_many_groups(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = checkpoint("llama", tmp_path / "full")
    small = prune(model, {0: [0, 1], 1: [2, 3]})
    small.save_pretrained(tmp_path / "small")
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "small", dtype=torch.float64)
    ids = torch.tensor([[1, 2, 3, 4]])
    torch.testing.assert_close(theirs(ids).logits, small.model(**TEXT), rtol=1e-5, atol=1e-5)
    again = zoo.from_pretrained(tmp_path / "small", dtype=torch.float64)
    torch.testing.assert_close(again.model(**TEXT), small.model(**TEXT))


def test_what_no_layout_expresses_is_refused(tmp_path):
    model = checkpoint("llama", tmp_path / "full")
    small = prune(model, {0: [0, 1]})
    with pytest.raises(EdgewiseError, match="2, 4") as found:
        small.save_pretrained(tmp_path / "small")
    assert "model.model.save" in found.value.help
    small.model.save(tmp_path / "small.edgewise")
    again = load(tmp_path / "small.edgewise")
    torch.testing.assert_close(again.eval()(**TEXT), small.model(**TEXT))


@pytest.mark.parametrize("said", [{"0": [9]}, {"7": [0]}, {"a": [0]}, [1], {"0": ["x"]}])
def test_a_wrong_field_is_refused(said, tmp_path):
    checkpoint("bert", tmp_path / "full")
    path = tmp_path / "full" / "config.json"
    table = json.loads(path.read_text()) | {"pruned_heads": said}
    path.write_text(json.dumps(table))
    with pytest.raises(EdgewiseError, match="pruned_heads"):
        zoo.from_pretrained(tmp_path / "full")


def test_generated_text_is_that_of_all_rows(tmp_path):
    """Rows that are appended to a pruned decoder, with its cache."""
    for name, heads in (("gpt2", {0: [1], 1: [0, 2]}), ("llama", {0: [0, 1]})):
        model = prune(checkpoint(name, tmp_path / name), heads)
        growing = model.model.growing(capacity=9)
        with torch.no_grad():
            rows = [growing(token=numbers(torch.tensor([[t]]))) for t in (1, 2, 3, 4)]
        torch.testing.assert_close(torch.cat(rows, 1), model.model(**TEXT).detach())


def test_importance_of_a_checkpoint(tmp_path):
    model = checkpoint("gpt2", tmp_path / "full")
    found = importance(model, [TEXT])
    assert found.loss > 0
    assert all(len(row) == 4 for row in found.scores)
    small = prune(model, found.least(keep=0.5))
    assert sum(map(len, small.pruned.values())) == 4
