"""Generation with every cache of transformers is generation without; growing caches evict."""

import copy

import hf_models as models
import pytest
import torch
from test_use import tokens
from transformers import DynamicCache

from edgewise import EdgewiseError, hf
from edgewise.graphs import (
    blocks,
    causal,
    dilated,
    full,
    global_tokens,
    longformer,
    per_head,
    per_layer,
    per_sample,
    strided,
    window,
)
from edgewise.hf.eviction import retained, retained_positions

SINKS = window(3) | global_tokens(2)
GRAPHS = {
    "window": window(3),
    "sinks": SINKS,
    "blocks": blocks(4),
    "strided": strided(3),
    "dilated": dilated(2, 2) | window(1),
    "longformer": longformer(2, 1),
    "distant sink": window(1) | global_tokens((7,)),
    "heads": per_head(window(1), SINKS, blocks(3), window(2)),
    "layers": per_layer(window(2) | global_tokens(1), blocks(4)),
}
HOW = {"max_new_tokens": 10, "do_sample": False, "pad_token_id": 0}
LEFT = torch.arange(6) >= torch.tensor([[0], [2], [5]])


def reference(model, graph):
    other = hf.restore(copy.deepcopy(model))
    layers = list(graph) if isinstance(graph, per_layer) else graph
    other.set_attn_implementation(models.register_reference(layers))
    return other


SOME = ("sinks", "heads", "layers")
DECODERS = {"gpt2": GRAPHS, "llama": SOME, "mistral": SOME, "gpt_oss": SOME, "gemma2": SOME}


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize(("name", "graph"), [(n, g) for n, some in DECODERS.items() for g in some])
def test_logits_are_those_of_a_dense_mask(name, graph, cache):
    model = hf.use(models.built(getattr(models, name)), GRAPHS[graph])
    how = {**HOW, "return_dict_in_generate": True, "output_logits": True}
    found = model.generate(tokens(2, 5), cache_implementation=cache, **how)
    other = reference(model, GRAPHS[graph])
    wanted = other.generate(tokens(2, 5), use_cache=False, **how)
    assert torch.equal(found.sequences, wanted.sequences)
    torch.testing.assert_close(found.logits, wanted.logits)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("graph", [SINKS, blocks(4), window(1) | global_tokens((7,))], ids=repr)
@pytest.mark.parametrize("make", [models.gpt2, models.llama, models.mistral])
def test_rows_padded_on_the_left(make, graph, beams):
    """Every row has sinks of its own."""
    model = hf.use(models.built(make), graph)
    ids = tokens(3, 6).masked_fill(~LEFT, 0)
    found = model.generate(ids, attention_mask=LEFT.long(), num_beams=beams, **HOW)
    plain = model.generate(ids, attention_mask=LEFT.long(), num_beams=beams, use_cache=False, **HOW)
    assert torch.equal(found, plain)


def sizes(cache):
    return [layer.keys.shape[-2] for layer in cache.layers]


@pytest.mark.parametrize("make", [models.gpt2, models.llama])
def test_keys_that_no_later_token_attends_to_are_evicted(make):
    model = hf.use(models.built(make), per_layer(SINKS, causal()))
    cache = DynamicCache(config=model.config)
    model.generate(tokens(2, 9), past_key_values=cache, **HOW)
    seen = 9 + 10 - 1
    assert sizes(cache) == [3 + 2, seen]
    assert cache.get_seq_length() == seen
    hf.use(model, SINKS)
    assert sizes(model(tokens(2, 30)).past_key_values) == [5, 5]
    hf.use(model, per_head(window(1), window(6), SINKS, blocks(4)))
    assert sizes(model(tokens(2, 30)).past_key_values) == [6 + 2] * 2


@pytest.mark.parametrize("make", [models.gemma2, models.mistral, models.gpt_oss])
def test_sliding_windows_evict_what_the_graph_does_not_need(make):
    narrow = window(1) | global_tokens(1)
    model = hf.use(models.built(make), narrow)
    cache = DynamicCache(config=model.config)
    found = model.generate(tokens(2, 9), past_key_values=cache, **HOW)
    assert torch.equal(found, model.generate(tokens(2, 9), use_cache=False, **HOW))
    assert all(size <= 2 for size in sizes(cache))  # 3 by the sliding window alone
    hf.use(model, per_layer(narrow, causal()))  # a layer needs all that its own mask allows
    found = model.generate(tokens(2, 9), **HOW)
    assert torch.equal(found, model.generate(tokens(2, 9), use_cache=False, **HOW))


@pytest.mark.parametrize("make", [models.llama, models.gemma2])
def test_steps_of_several_tokens(make):
    model = hf.use(models.built(make), SINKS)
    ids = tokens(2, 20)
    wanted = model(ids).logits
    cache, at = DynamicCache(config=model.config), 0
    for count in (6, 1, 5, 8):
        step = model(ids[:, at : at + count], past_key_values=cache)
        torch.testing.assert_close(step.logits, wanted[:, at : at + count])
        at += count
    assert sizes(cache) == [5, 5]


@pytest.mark.parametrize("make", [models.llama, models.gemma2])
def test_tokens_are_taken_back(make):
    model = hf.use(models.built(make), SINKS)
    ids = tokens(2, 20)
    wanted = model(ids).logits
    cache = DynamicCache(config=model.config)
    model(ids[:, :10], past_key_values=cache)
    cache.activate_past_recording()
    model(tokens(2, 4), past_key_values=cache)
    cache.crop(-4)
    assert sizes(cache) == [5, 5]
    step = model(ids[:, 10:], past_key_values=cache)
    torch.testing.assert_close(step.logits, wanted[:, 10:])
    other = model(ids[:, :10]).past_key_values
    with pytest.raises(EdgewiseError) as caught:
        other.crop(-4)
    assert caught.value.code == "evicted-keys"


def test_speculative_decoding():
    model = hf.use(models.built(models.llama), SINKS)
    torch.manual_seed(3)
    assistant = hf.use(models.llama().double().eval(), window(2))
    wanted = model.generate(tokens(1, 5), **HOW)
    assert torch.equal(model.generate(tokens(1, 5), assistant_model=assistant, **HOW), wanted)


def test_prompt_lookup():
    model = hf.use(models.built(models.llama), SINKS)
    ids = tokens(1, 4).repeat(1, 3)
    wanted = model.generate(ids, **HOW)
    assert torch.equal(model.generate(ids, prompt_lookup_num_tokens=3, **HOW), wanted)


def test_a_cache_of_another_graph():
    model = hf.use(models.built(models.llama), window(2))
    cache = model(tokens(2, 9)).past_key_values
    for other in (window(4), window(1) | global_tokens(1), None):
        hf.restore(model) if other is None else hf.use(model, other)
        with pytest.raises(EdgewiseError) as caught:
            model(tokens(2, 1), past_key_values=cache)
        assert caught.value.code == "evicted-keys"


def test_a_mask_of_the_users_own_after_eviction():
    model = hf.use(models.built(models.llama), window(2))
    cache = model(tokens(2, 9)).past_key_values
    with pytest.raises(EdgewiseError) as caught:
        model(tokens(2, 1), past_key_values=cache, attention_mask=torch.ones(2, 1, 1, 10).bool())
    assert caught.value.code == "evicted-keys"


def test_samples_have_all_keys():
    graph = per_sample(window(1), window(3))
    model = hf.use(models.built(models.llama), graph)
    assert sizes(model(tokens(2, 9)).past_key_values) == [9, 9]
    found = model.generate(tokens(2, 5), **HOW)
    assert torch.equal(found, model.generate(tokens(2, 5), use_cache=False, **HOW))


def test_an_encoder_and_a_decoder_with_sinks():
    model = hf.use(models.built(models.t5), SINKS)
    found = model.generate(tokens(), use_cache=True, return_dict_in_generate=True, **HOW)
    plain = model.generate(tokens(), use_cache=False, **HOW)
    assert torch.equal(found.sequences, plain)
    assert sizes(found.past_key_values.self_attention_cache) == [5, 5]
    assert sizes(found.past_key_values.cross_attention_cache) == [9, 9]


def bart():
    from transformers import BartConfig, BartForConditionalGeneration

    sides = ("encoder", "decoder")
    sizes = {f"{side}_layers": 2 for side in sides} | {f"{side}_ffn_dim": 16 for side in sides}
    sizes |= {f"{side}_attention_heads": 4 for side in sides}
    ends = {"eos_token_id": None, "forced_eos_token_id": None, "decoder_start_token_id": 2}
    config = BartConfig(vocab_size=29, d_model=16, max_position_embeddings=64, **sizes, **ends)
    return BartForConditionalGeneration(config)


def bert_decoder():
    from transformers import BertConfig, BertLMHeadModel

    ends = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
    return BertLMHeadModel(BertConfig(**models.TEXT, **ends, is_decoder=True))


@pytest.mark.parametrize("make", [bart, bert_decoder, models.gemma2])
def test_other_decoders(make):
    model = hf.use(models.built(make), SINKS)
    how = {**HOW, "pad_token_id": 1, "num_beams": 2}
    found = model.generate(tokens(), **how)
    assert torch.equal(found, model.generate(tokens(), use_cache=False, **how))


def test_a_conversation():
    """A cache is continued by a longer text, also in chunks."""
    model = hf.use(models.built(models.llama), SINKS)
    first = model.generate(tokens(2, 7), return_dict_in_generate=True, **HOW)
    more = torch.cat([first.sequences, tokens(2, 4)], 1)
    wanted = model.generate(more, use_cache=False, **HOW)
    found = model.generate(more, past_key_values=first.past_key_values, **HOW)
    assert torch.equal(found, wanted)
    assert torch.equal(model.generate(more, prefill_chunk_size=5, **HOW), wanted)


@pytest.mark.parametrize("graph", [*GRAPHS.values(), full(), SINKS - window(1)], ids=repr)
def test_what_is_retained_is_all_that_later_tokens_attend_to(graph):
    for one in graph if isinstance(graph, per_layer) else [graph]:
        pairs = (one & causal()).dense(60)
        pairs = pairs.any(0) if pairs.ndim == 3 else pairs
        for t in (1, 4, 7, 8, 9, 20):
            needed = pairs[t:, :t].any(0).nonzero().flatten().tolist()
            held = retained_positions(one & causal(), t, frozenset({0}))
            held = range(t) if held is None else held.tolist()
            assert set(needed) <= set(held)
            radius = retained(one & causal(), t).radius
            if radius is not None and not isinstance(one, per_head) and one != GRAPHS["dilated"]:
                assert len(held) <= len(needed) + 1
