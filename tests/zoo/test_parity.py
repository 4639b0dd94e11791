"""Transformers as rules against `transformers`, in float64: outputs, gradients, and back again.

Random small configurations, odd lengths, padding.
"""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from theirs import assert_equal, fused, pair, transformers, with_exact_numbers

from edgewise import numbers

few = settings(max_examples=4, phases=[Phase.explicit, Phase.generate])
sizes = st.fixed_dictionaries(
    {
        "vocab_size": st.integers(20, 60),
        "num_attention_heads": st.integers(1, 3),
        "d": st.sampled_from([2, 4, 6]),
        "intermediate_size": st.integers(1, 20),
        "num_hidden_layers": st.integers(1, 3),
    }
)


@st.composite
def batches(draw, vocabulary: int = 20, longest: int = 11):
    """Tokens, a mask of each row's length, and segments."""
    lengths = draw(st.lists(st.integers(1, longest), min_size=1, max_size=3))
    torch.manual_seed(draw(st.integers(0, 99)))
    token = torch.randint(3, vocabulary, (len(lengths), max(lengths)))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return token * mask + (1 - mask), mask, torch.randint(0, 2, token.shape)


def settings_of(drawn: dict[str, int], **others):
    table = {k: v for k, v in drawn.items() if k != "d"}
    size = drawn["d"] * drawn["num_attention_heads"]
    return table | {"hidden_size": size, "max_position_embeddings": 16} | others


def rows(token, mask, segment=None):
    found = {"token": numbers(token), "mask": mask.double()[..., None]}
    return found if segment is None else found | {"segment": numbers(segment)}


@pytest.mark.parametrize(
    ("name", "body", "typed"),
    [
        ("Bert", "out", True),
        ("Roberta", "out", True),
        ("MegatronBert", "out", True),
        ("MPNet", "out", False),
    ],
)
@few
@given(sizes, batches(), st.sampled_from(["gelu", "relu", "gelu_new"]))
def test_encoders(name, body, typed, drawn, batch, activation):
    token, mask, segment = batch
    config = getattr(transformers, f"{name}Config")(**settings_of(drawn, hidden_act=activation))
    both = pair(getattr(transformers, f"{name}Model")(config), 0)
    extra = {"token_type_ids": segment} if typed else {}
    inputs = rows(token, mask, segment if typed else None)
    assert fused(both.ours.compile("out"), **inputs)

    def run(model):
        return model(token, attention_mask=mask, **extra).last_hidden_state

    assert_equal(both, "out", inputs, run, mask.bool())


@pytest.mark.parametrize("name", ["Roberta", "MPNet"])
@pytest.mark.parametrize("pad", [0, 3])
def test_positions_begin_where_theirs_do(name, pad):
    """RoBERTa counts from after its padding token, MPNet from 2 whatever that is."""
    sizes = {"num_attention_heads": 2, "d": 4, "intermediate_size": 8, "num_hidden_layers": 1}
    table = settings_of({"vocab_size": 20, **sizes}, pad_token_id=pad)
    config = getattr(transformers, f"{name}Config")(**table)
    both = pair(getattr(transformers, f"{name}Model")(config), 0)
    token, mask = torch.randint(5, 20, (2, 7)), torch.ones(2, 7, dtype=torch.int64)
    segment = torch.zeros_like(token) if name == "Roberta" else None

    def run(model):
        return model(token, attention_mask=mask).last_hidden_state

    assert_equal(both, "out", rows(token, mask, segment), run)


@pytest.mark.parametrize("name", ["Bert", "Roberta", "MegatronBert", "MPNet"])
@few
@given(sizes, batches())
def test_masked_language_models(name, drawn, batch):
    token, mask, segment = batch
    config = getattr(transformers, f"{name}Config")(**settings_of(drawn))
    both = pair(getattr(transformers, f"{name}ForMaskedLM")(config), 0)
    typed = "segment" in both.ours.compile("logits").inputs
    extra = {"token_type_ids": segment} if typed else {}

    def run(model):
        return model(token, attention_mask=mask, **extra).logits

    inputs = rows(token, mask, segment if typed else None)
    assert_equal(both, "logits", inputs, run, mask.bool())


@few
@given(sizes, batches())
def test_pooled(drawn, batch):
    token, mask, segment = batch
    both = pair(transformers.BertModel(transformers.BertConfig(**settings_of(drawn))), 0)

    def run(model):
        return model(token, attention_mask=mask, token_type_ids=segment).pooler_output

    assert_equal(both, "pooled", rows(token, mask, segment), run)


@few
@given(sizes, batches())
def test_distilbert(drawn, batch):
    token, mask, _ = batch
    config = transformers.DistilBertConfig(
        vocab_size=drawn["vocab_size"],
        dim=drawn["d"] * drawn["num_attention_heads"],
        n_heads=drawn["num_attention_heads"],
        hidden_dim=drawn["intermediate_size"],
        n_layers=drawn["num_hidden_layers"],
        max_position_embeddings=16,
    )
    both = pair(transformers.DistilBertForMaskedLM(config), 0)

    def run(model):
        return model(token, attention_mask=mask).logits

    assert_equal(both, "logits", rows(token, mask), run, mask.bool())


@few
@given(sizes, batches())
def test_gpt2(drawn, batch):
    token, mask, _ = batch
    config = transformers.GPT2Config(
        vocab_size=drawn["vocab_size"],
        n_embd=drawn["d"] * drawn["num_attention_heads"],
        n_head=drawn["num_attention_heads"],
        n_inner=drawn["intermediate_size"],
        n_layer=drawn["num_hidden_layers"],
        n_positions=16,
        bos_token_id=0,
        eos_token_id=0,
    )
    both = pair(transformers.GPT2LMHeadModel(config), 0)
    assert fused(both.ours.model, token=numbers(token))

    def run(model):
        return model(token, attention_mask=mask).logits

    assert_equal(both, "logits", {"token": numbers(token)}, run, mask.bool())


LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip


@few
@given(sizes, batches(), st.integers(1, 3), st.booleans(), st.sampled_from([None, LLAMA3]))
def test_llama(drawn, batch, queries, tied, rotary):
    token, mask, _ = batch
    groups, d = drawn["num_attention_heads"], drawn["d"]
    config = transformers.LlamaConfig(
        **settings_of(drawn)
        | {"num_attention_heads": groups * queries, "hidden_size": 2 * groups * queries},
        num_key_value_heads=groups,
        head_dim=d,
        tie_word_embeddings=tied,
        **({"rope_parameters": rotary} if rotary else {}),
    )
    both = pair(transformers.LlamaForCausalLM(config), 0)
    assert fused(both.ours.model, token=numbers(token))

    def run(model):
        return with_exact_numbers(model)(token, attention_mask=mask).logits

    assert_equal(both, "logits", {"token": numbers(token)}, run, mask.bool())


@few
@given(
    sizes,
    batches(),
    st.integers(1, 9),
    st.sampled_from(["relu", "gated-gelu", "gated-silu"]),
    st.booleans(),
    st.sampled_from([(4, 3), (8, 6), (32, 128)]),
)
def test_t5(drawn, batch, length, kind, tied, buckets):
    token, mask, _ = batch
    config = transformers.T5Config(
        vocab_size=drawn["vocab_size"],
        d_model=7,
        d_kv=drawn["d"],
        num_heads=drawn["num_attention_heads"],
        d_ff=drawn["intermediate_size"],
        num_layers=drawn["num_hidden_layers"],
        num_decoder_layers=2,
        feed_forward_proj=kind,
        tie_word_embeddings=tied,
        relative_attention_num_buckets=buckets[0],
        relative_attention_max_distance=buckets[1],
    )
    both = pair(transformers.T5ForConditionalGeneration(config), 0)
    target = torch.randint(0, 20, (len(token), length))
    inputs = {
        "source": numbers(token), "mask": mask.double()[..., None], "target": numbers(target),
    }  # fmt: skip
    assert fused(both.ours.model, **inputs)

    def run(model):
        return model(input_ids=token, attention_mask=mask, decoder_input_ids=target).logits

    assert_equal(both, "logits", inputs, run)


@few
@given(sizes, st.sampled_from([(4, 2), (6, 3), (5, 5)]), st.integers(1, 3), st.integers(1, 3))
def test_vit(drawn, image, channels, batch):
    table = {k: v for k, v in settings_of(drawn).items() if k != "vocab_size"}
    table.pop("max_position_embeddings")
    config = transformers.ViTConfig(
        **table, image_size=image[0], patch_size=image[1], num_channels=channels, num_labels=3
    )
    both = pair(transformers.ViTForImageClassification(config), 0)
    pixel = torch.randn(batch, channels, image[0], image[0], dtype=torch.float64)

    def run(model):
        return model(pixel_values=pixel).logits

    assert_equal(both, "logits", {"pixel": pixel[..., None]}, run)
    whole = pair(transformers.ViTModel(config), 0)
    pooled = lambda model: model(pixel_values=pixel).pooler_output  # noqa: E731
    assert_equal(whole, "pooled", {"pixel": pixel[..., None]}, pooled)


@few
@given(sizes, batches(), st.sampled_from([4, 6]))
def test_longformer_at_any_length(drawn, batch, window):
    token, mask, segment = batch
    table = settings_of(drawn, attention_window=[window] * drawn["num_hidden_layers"])
    both = pair(transformers.LongformerModel(transformers.LongformerConfig(**table)), 0)
    everywhere = torch.zeros_like(mask)
    everywhere[:, 0] = 1

    def run(model):
        return model(token, mask, everywhere, token_type_ids=segment).last_hidden_state

    inputs = rows(token, mask, segment)
    assert fused(both.ours.compile("out"), **inputs)
    assert_equal(both, "out", inputs, run, mask.bool())


@few
@given(sizes, batches(longest=31), st.integers(1, 3), st.integers(1, 2))
def test_bigbird_at_any_length(drawn, batch, block, random):
    token, mask, segment = batch
    config = transformers.BigBirdConfig(
        **settings_of(drawn, max_position_embeddings=40),
        block_size=block,
        num_random_blocks=random,
        sep_token_id=1,
    )
    both = pair(transformers.BigBirdModel(config), 0)

    def run(model):
        model.set_attention_type("block_sparse")  # it forgets after a short text
        return model(token, mask, segment).last_hidden_state

    inputs = rows(token, mask, segment)
    assert fused(both.ours.compile("out"), **inputs)
    assert_equal(both, "out", inputs, run, mask.bool())
