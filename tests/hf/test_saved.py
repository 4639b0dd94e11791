"""A model that is saved keeps what it attends along, and is loaded with it."""

import json
import pickle
import subprocess
import sys

import hf_models as models
import pytest
import torch
from transformers import AutoModel, BertForMaskedLM

from edgewise import EdgewiseError, EdgewiseWarning, F, Program, R, V, hf
from edgewise.graphs import causal, from_edges, full, global_tokens, per_head, per_layer, window

TOKENS = torch.randint(3, 29, (2, 9), generator=torch.Generator().manual_seed(1))
RULES = Program([
    (R.score(V.H, V.I, V.J) <= (R.k(V.H, V.J).T @ R.q(V.H, V.I), R.k(V.H, V.J)["favour":1, 4]))
    | [F.softmax_agg(agg_terms=[V.J])],
    (R.out(V.H, V.I) <= (R.score(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product],
])  # fmt: skip
ATTENTIONS = {
    "parts": {"encoder.layer.1": window(1)},
    "a union": window(1) | global_tokens(1),
    "edges": from_edges(torch.tensor([[0, 1, 2], [1, 2, 0]])) | window(0),
    "layers": per_layer(window(1), per_head(window(2), causal(), full(), global_tokens(2))),
    "a program": RULES,
}


def hidden(model):
    with torch.no_grad():
        return model(TOKENS).last_hidden_state


@pytest.mark.parametrize("name", ATTENTIONS)
def test_loaded_it_attends_as_before(tmp_path, name):
    model = hf.use(models.built(models.bert), ATTENTIONS[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01)
    model.save_pretrained(tmp_path)
    loaded = hf.load(tmp_path, dtype=torch.float64).eval()
    assert hf.graph_of(loaded) == hf.graph_of(model) == ATTENTIONS[name]
    torch.testing.assert_close(hidden(loaded), hidden(model))


def test_loaded_by_transformers_it_says_what_to_do(tmp_path):
    model = hf.use(models.built(models.bert), window(1))
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path, dtype=torch.float64).eval()
    with pytest.raises(EdgewiseError) as caught:
        hidden(loaded)
    assert "hf.use(model, hf.graph_of(model))" in caught.value.help
    hf.use(loaded, hf.graph_of(loaded))
    torch.testing.assert_close(hidden(loaded), hidden(model))
    torch.testing.assert_close(hidden(hf.restore(loaded)), hidden(hf.restore(model)))


@pytest.mark.parametrize("name", ["eager", "sdpa", None])
def test_loaded_with_another_attention_it_is_not_dense_in_silence(tmp_path, name):
    model = hf.use(models.built(models.bert), window(1))
    model.save_pretrained(tmp_path)
    options = {"dtype": torch.float64, "attn_implementation": name}
    with pytest.raises(EdgewiseError) as caught:
        AutoModel.from_pretrained(tmp_path, **options)
    assert caught.value.code == "lost-graph"
    assert "`hf.load(path)`" in caught.value.help
    with pytest.raises(EdgewiseError, match="lost-graph"):
        AutoModel.from_pretrained(tmp_path, **options, output_loading_info=True)
    loaded = hf.load(tmp_path, **options).eval()
    torch.testing.assert_close(hidden(loaded), hidden(model))
    dense = models.built(models.bert)
    dense.load_state_dict(model.state_dict())
    torch.testing.assert_close(hidden(hf.restore(loaded)), hidden(dense))
    dense.save_pretrained(tmp_path / "dense")
    assert hf.graph_of(AutoModel.from_pretrained(tmp_path / "dense", **options)) is None


@pytest.mark.parametrize("make", [models.bert, models.llama, models.t5])
def test_another_attention_set_after_the_graph_is_refused(make):
    model = hf.use(models.built(make), window(1))
    model.set_attn_implementation("eager")
    ids = {"decoder_input_ids": TOKENS} if make is models.t5 else {}
    with pytest.raises(EdgewiseError, match="lost-graph"):
        model(TOKENS, **ids)
    hf.restore(model)
    model.set_attn_implementation("eager")
    model(TOKENS, **ids)


def test_weights_are_asked_for_where_a_model_is_loaded(tmp_path):
    model = hf.use(models.built(models.bert), window(1))
    wanted = model(TOKENS, output_attentions=True).attentions[1].to_dense()
    model.save_pretrained(tmp_path)
    found = hf.load(tmp_path, dtype=torch.float64, output_attentions=True).eval()
    torch.testing.assert_close(found(TOKENS).attentions[1].to_dense(), wanted)


def test_without_edgewise_it_is_not_dense_in_silence(tmp_path):
    hf.use(models.built(models.bert), window(1)).save_pretrained(tmp_path)
    code = f"from transformers import AutoModel; AutoModel.from_pretrained({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0
    assert '`attn_implementation="edgewise"` is not supported' in done.stderr


def test_restored_it_is_saved_as_it_was(tmp_path):
    model = models.built(models.bert)
    before = model.config.to_dict()
    assert hf.graph_of(model) is None
    hf.restore(hf.use(model, window(1))).save_pretrained(tmp_path)
    assert model.config.to_dict().keys() == before.keys()
    assert hf.graph_of(hf.load(tmp_path)) is None


@pytest.mark.parametrize(
    "attention",
    [
        Program([(R.out(V.H, V.I) <= R.v(V.H, V.I)) | [F.call(torch.tanh)]]),
        from_edges(torch.arange(200_000).reshape(2, -1)),
    ],
    ids=["a Python function", "a long list"],
)
def test_what_has_no_text_says_so(tmp_path, attention):
    model = hf.use(models.built(models.bert), attention)
    with pytest.warns(EdgewiseWarning, match="has no text to save"):
        model.save_pretrained(tmp_path)
    with pytest.raises(EdgewiseError) as caught:
        hf.load(tmp_path)
    assert caught.value.code == "not-saved"


@pytest.mark.parametrize(
    ("stored", "code"),
    [
        ({"graph": "__import__('os').remove('x')"}, "bad-pattern"),
        ({"graph": "window(3"}, "bad-pattern"),
        ({"program": "out(H"}, "syntax-error"),
        ({"parts": [1]}, "not-saved"),
        ({"parts": {"encoder": {}}}, "not-saved"),
        ({"parts": {"decoder": {"graph": "window(1)"}}}, "unknown-part"),
        ("window(1)", "not-saved"),
        ({}, "not-saved"),
    ],
    ids=str,
)
def test_a_damaged_config_is_refused(tmp_path, stored, code):
    hf.use(models.built(models.bert), window(1)).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"edgewise": stored}))
    with pytest.raises(EdgewiseError) as caught:
        hf.load(tmp_path)
    assert caught.value.code == code


@pytest.mark.parametrize("make", [models.bert, models.llama])
def test_pickled_it_attends_as_before(make):
    model = hf.use(models.built(make), window(1) | global_tokens(1))
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again(TOKENS)[0], model(TOKENS)[0])
    assert hf.graph_of(hf.restore(again)) is None


def test_a_part_says_that_it_is_not_saved_with_the_larger_model(tmp_path):
    model = BertForMaskedLM(models.built(models.bert).config)
    hf.use(model.bert, window(1))
    model.state_dict()  # weights alone: no warning
    model.bert.save_pretrained(tmp_path / "part")
    assert hf.graph_of(hf.load(tmp_path / "part")) == window(1)
    with pytest.warns(EdgewiseWarning, match="the graph of `bert` is not saved"):
        model.save_pretrained(tmp_path / "all")
    hf.restore(model)
    model.save_pretrained(tmp_path / "all")


def test_the_class_that_was_saved_is_loaded(tmp_path):
    model = hf.use(models.gpt2(), window(2))
    model.save_pretrained(tmp_path)
    assert type(hf.load(tmp_path)) is type(model)
    assert type(hf.load(tmp_path, AutoModel)) is not type(model)


def test_a_folder_without_a_model_is_an_error_of_ours(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(EdgewiseError, match="no model is loaded from") as caught:
            hf.load(path)
        assert caught.value.code == "not-saved"
        assert "`save_pretrained`" in caught.value.help
