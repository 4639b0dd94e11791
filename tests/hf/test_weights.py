"""`output_attentions=True` gives the weights of pairs, equal to transformers' own dense ones."""

import copy

import hf_models as models
import pytest
import torch
import transformers
from test_use import tokens

from edgewise import EdgewiseError, hf
from edgewise.graphs import (
    bigbird,
    causal,
    full,
    global_tokens,
    per_head,
    per_layer,
    per_sample,
    strided,
    window,
)

HEADS = per_head(window(1), window(3), full(), strided(2))
LENGTHS = torch.tensor([[9], [5], [1]])
RIGHT, LEFT = torch.arange(9) < LENGTHS, torch.arange(9) >= 9 - LENGTHS
GRAPHS = {
    "window": window(2),
    "heads": HEADS,
    "layers": per_layer(window(1) | global_tokens(1), HEADS),
    "samples": per_sample(window(1), HEADS, full()),
}
MAKERS = {
    "bert": models.bert, "gpt2": models.gpt2, "llama": models.llama, "mistral": models.mistral,
    "gemma2": models.gemma2, "gpt_oss": models.gpt_oss,
}  # fmt: skip


def reference(model, layers):
    other = copy.deepcopy(model)
    plain = [models.BySample(g) if isinstance(g, per_sample) else g for g in layers]
    other.set_attn_implementation(models.register_reference(plain))
    return other


@pytest.mark.parametrize("padding", [None, "right"])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_weights_are_those_of_a_dense_mask(make, graph, padding):
    model, ids = models.built(make), tokens(3)
    real = RIGHT if padding else torch.ones(3, 9).bool()
    layers = list(GRAPHS[graph]) if graph == "layers" else [GRAPHS[graph]] * 2
    other = reference(model, layers)(ids, attention_mask=real.long(), output_attentions=True)
    theirs, wanted = other.attentions, other[0]
    found = hf.use(model, GRAPHS[graph])(ids, attention_mask=real.long(), output_attentions=True)
    torch.testing.assert_close(found[0][real], wanted[real])
    assert len(found.attentions) == 2
    for ours, other in zip(found.attentions, theirs, strict=True):
        assert ours.weights.shape == (3, 4, len(ours.keys)) == (3, 4, len(ours.queries))
        rows = real[:, None, :, None]
        torch.testing.assert_close(ours.to_dense() * rows, other * rows)
    plain = model(ids, attention_mask=real.long())
    torch.testing.assert_close(found[0][real], plain[0][real])


ENDS = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
GROUPED = {**models.TEXT, **ENDS, "num_key_value_heads": 2}
BERTS = {**models.TEXT, **models.QUIET, "pad_token_id": 1}
DISTILLED = {"vocab_size": 29, "dim": 16, "n_heads": 4, "n_layers": 2, "hidden_dim": 24}
FAMILIES = {
    "Roberta": BERTS,
    "Electra": {**BERTS, "embedding_size": 16},
    "DistilBert": {**DISTILLED, "dropout": 0.0, "attention_dropout": 0.0},
    "ModernBert": {**models.TEXT, **ENDS, "eos_token_id": 1, "cls_token_id": 2, "sep_token_id": 1},
    "Qwen2": GROUPED,
    "Qwen3": {**GROUPED, "head_dim": 4},
    "Phi": {**models.TEXT, **ENDS, "resid_pdrop": 0.0},
    "GPTNeoX": {**models.TEXT, **ENDS},
    "Olmo2": {**models.TEXT, **ENDS},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_those_of_transformers_with_the_graph_as_its_mask(family):
    """A mask of (batch, 1, n, n) numbers, added to dense scores; some take softmax in float32."""
    config = getattr(transformers, f"{family}Config")(**FAMILIES[family])
    model = models.built(lambda: getattr(transformers, f"{family}Model")(config))
    graph, ids = window(2) | global_tokens(1), tokens(2, 9)
    dense = copy.deepcopy(model)
    dense.set_attn_implementation("eager")
    is_causal = any(getattr(module, "is_causal", False) for module in model.modules())
    allowed = (graph & causal() if is_causal else graph).dense(9)
    least = torch.finfo(torch.float64).min
    mask = torch.zeros(2, 1, 9, 9, dtype=torch.float64).masked_fill(~allowed, least)
    wanted = dense(ids, attention_mask=mask, output_attentions=True)
    found = hf.use(model, graph)(ids, output_attentions=True)
    torch.testing.assert_close(found[0], wanted[0], atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(found.attentions, wanted.attentions, strict=True):
        assert len(ours.keys) == int(allowed.sum())
        torch.testing.assert_close(ours.to_dense(), theirs, atol=1e-6, rtol=1e-5)


def test_padding_on_the_left_and_lengths():
    """Pairs are places of the input; each row's weights are those that it has alone."""
    model = hf.use(models.built(models.bert), bigbird(1, seed=0) | global_tokens(1))
    ids, places = tokens(3), (LEFT.cumsum(1) - 1).clamp_min(0)
    found = model(ids, LEFT.long(), position_ids=places, output_attentions=True).attentions
    for row, length in enumerate((9, 5, 1)):
        alone = model(ids[row : row + 1, 9 - length :], output_attentions=True).attentions
        for ours, other in zip(found, alone, strict=True):
            torch.testing.assert_close(
                ours.to_dense()[row, :, 9 - length :, 9 - length :], other.to_dense()[0]
            )


def test_gradients():
    model, ids = models.built(models.llama), tokens()
    other = reference(model, [window(2)] * 2)
    theirs = other(ids, output_attentions=True)
    ours = hf.use(model, window(2))(ids, output_attentions=True)
    wanted = models.gradients(other, sum(w.square().sum() for w in theirs.attentions))
    found = models.gradients(model, sum(w.weights.square().sum() for w in ours.attentions))
    assert found.keys() == wanted.keys()
    for name in found:
        torch.testing.assert_close(found[name], wanted[name])


@pytest.mark.parametrize("sinks", [0, 1])
@pytest.mark.parametrize("make", [models.gpt2, models.llama, models.mistral])
def test_weights_while_generating(make, sinks):
    """A step's keys are positions in the text, also where the cache has evicted others."""
    model = hf.use(models.built(make), window(2) | global_tokens(sinks))
    how = {"max_new_tokens": 8, "do_sample": False, "return_dict_in_generate": True}
    found = model.generate(tokens(2, 5), output_attentions=True, **how)
    full_pass = model(found.sequences[:, :-1], output_attentions=True).attentions
    for step, layers in enumerate(found.attentions):
        for ours, wanted in zip(layers, full_pass, strict=True):
            at = 4 + step
            mine = ours.to_dense()
            torch.testing.assert_close(
                mine[:, :, -1], wanted.to_dense()[:, :, at, : mine.shape[-1]]
            )


def test_an_encoder_and_a_decoder():
    model = models.built(models.t5)
    other = copy.deepcopy(model)
    other.set_attn_implementation("eager")
    ids = {"input_ids": tokens(), "decoder_input_ids": tokens(2, 7)}
    wanted = other(**ids, output_attentions=True)
    found = hf.use(model, full())(**ids, output_attentions=True)
    for name in ("encoder_attentions", "decoder_attentions", "cross_attentions"):
        for ours, theirs in zip(found[name], wanted[name], strict=True):
            torch.testing.assert_close(ours.to_dense(), theirs)


def test_long_texts_are_pairs():
    model = hf.longer(models.built(models.bert, torch.float32), 5000, window(3) | global_tokens(1))
    (first, _) = model(tokens(1, 5000), output_attentions=True).attentions
    assert first.weights.numel() < 5000 * 12 * 4
    torch.testing.assert_close(first.row(2500)[1].sum(-1), torch.ones(1, 4))
    assert first.row(2500)[0].tolist() == [0, *range(2497, 2504)]
    assert torch.equal(first.row(-1)[0], first.row(first.shape[2] - 1)[0])
    for query in (first.shape[2], -first.shape[2] - 1, "a", 1.5, None):
        with pytest.raises(EdgewiseError) as caught:
            first.row(query)
        assert caught.value.code == "no-such-head"
    assert repr(first) == "AttentionWeights(44,980 pairs of 5,000×5,000, 1 samples, 4 heads)"


def test_an_option_of_the_config():
    model = models.built(models.bert)
    model.set_attn_implementation("eager")
    model.config.output_attentions = True
    wanted = model(tokens()).attentions
    found = hf.use(model, full() & (window(9) | causal()))(tokens()).attentions
    torch.testing.assert_close(found[1].to_dense(), wanted[1])


@pytest.mark.parametrize("make", [models.gemma2, models.gpt_oss], ids=["gemma2", "gpt_oss"])
def test_caps_and_sinks_are_those_of_transformers(make):
    """Their softmax is in float32."""
    model = models.built(make)
    model.set_attn_implementation("eager")
    wanted = model(tokens(), output_attentions=True)
    found = hf.use(model, causal())(tokens(), output_attentions=True)
    close = {"atol": 1e-6, "rtol": 1e-5}
    torch.testing.assert_close(found.logits, wanted.logits, **close)
    torch.testing.assert_close(found.attentions[1].to_dense(), wanted.attentions[1], **close)
    grads = [models.gradients(model, out.logits.square().sum()) for out in (found, wanted)]
    for name in grads[0]:
        torch.testing.assert_close(grads[0][name], grads[1][name], atol=1e-4, rtol=1e-4)


def test_packed_texts():
    model = hf.use(models.built(models.llama), window(2) | global_tokens(1))
    ids, places = tokens(1, 9), torch.tensor([[0, 1, 2, 3, 0, 1, 0, 1, 2]])
    options = {"use_cache": False, "output_attentions": True}
    found = model(ids, position_ids=places, **options).attentions[1].to_dense()
    for first, stop in ((0, 4), (4, 6), (6, 9)):
        alone = model(ids[:, first:stop], **options).attentions[1].to_dense()
        torch.testing.assert_close(found[:, :, first:stop, first:stop], alone)
        found[:, :, first:stop, first:stop] = 0
    assert not found.any()
