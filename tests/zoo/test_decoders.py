"""Decoders of the Llama family against `transformers`, in float64: logits, gradients, and back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_parity import batches, few
from theirs import assert_equal, fused, pair, transformers, with_exact_numbers

from edgewise import numbers

LINEAR = {"rope_type": "linear", "rope_theta": 300.0, "factor": 4.0}
NEAR = {"rope_type": "default", "rope_theta": 20.0}
KINDS = [["sliding_attention"] * 3, ["full_attention", "sliding_attention", "full_attention"]]
CAPS = {"final_logit_softcapping": [None, 1.5], "query_pre_attn_scalar": [7, 24]}
BIASED = {"attention_bias": [True, False]}
FAMILY = {
    "Llama": {**BIASED, "mlp_bias": [True, False], "rope_parameters": [LINEAR]},
    "Mistral": {"sliding_window": [None, 1, 3, 40]},
    "Qwen2": {
        "use_sliding_window": [True, False], "sliding_window": [3], "max_window_layers": [0, 1, 3],
    },
    "Qwen3": {
        **BIASED, "use_sliding_window": [True], "sliding_window": [2], "layer_types": KINDS,
    },
    "Gemma": BIASED,
    "Gemma2": {
        **CAPS, "sliding_window": [3], "layer_types": KINDS, "attn_logit_softcapping": [None, 0.7],
    },
    "Gemma3": {
        **CAPS, "sliding_window": [3], "layer_types": KINDS,
        "rope_parameters": [{"full_attention": LINEAR, "sliding_attention": NEAR}],
    },
    "Phi3": {
        "sliding_window": [None, 3],
        "rope_parameters": [NEAR, {**NEAR, "partial_rotary_factor": 0.5}],
    },
}  # fmt: skip


@st.composite
def configurations(draw, name: str):
    """A small configuration: odd sizes, grouped heads, tied or not, options of the architecture."""
    groups, queries = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    heads, d = groups * queries, draw(st.sampled_from([4, 8]))
    own_heads = name not in ("Phi3", "Qwen2")
    table = {
        "vocab_size": draw(st.integers(20, 40)),
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "hidden_size": heads * draw(st.sampled_from([2, 5])) if own_heads else heads * d,
        "intermediate_size": draw(st.integers(1, 12)),
        "num_hidden_layers": 3,
        "max_position_embeddings": 32,
        "tie_word_embeddings": draw(st.booleans()),
        "pad_token_id": 0,
        **({"head_dim": d} if own_heads else {}),
        **{k: draw(st.sampled_from(values)) for k, values in FAMILY[name].items()},
    }
    return config_of(name)(**table)


def config_of(name: str):
    return getattr(transformers, "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config")


@pytest.mark.parametrize("name", FAMILY)
@few
@given(data=st.data())
def test_logits(name, data):
    config = data.draw(configurations(name))
    token, mask, _ = data.draw(batches())
    both = pair(getattr(transformers, f"{name}ForCausalLM")(config), 0)
    assert fused(both.ours.model, token=numbers(token))

    def run(model):
        return with_exact_numbers(model)(token, attention_mask=mask).logits

    assert_equal(both, "logits", {"token": numbers(token)}, run, mask.bool())


@pytest.mark.parametrize("name", FAMILY)
def test_bodies(name):
    torch.manual_seed(0)
    sizes = {"num_attention_heads": 2, "num_key_value_heads": 1, "hidden_size": 8, "head_dim": 4}
    config = config_of(name)(
        vocab_size=20, intermediate_size=5, num_hidden_layers=2, pad_token_id=0, **sizes
    )
    body = getattr(transformers, "Gemma3TextModel" if name == "Gemma3" else f"{name}Model")
    both, token = pair(body(config), 0), torch.randint(3, 20, (2, 5))
    run = lambda model: with_exact_numbers(model)(token).last_hidden_state  # noqa: E731
    assert_equal(both, both.ours.output, {"token": numbers(token)}, run)


@few
@given(data=st.data())
def test_gpt(data):
    heads, (token, mask, _) = data.draw(st.integers(1, 3)), data.draw(batches())
    config = transformers.OpenAIGPTConfig(
        vocab_size=data.draw(st.integers(20, 30)),
        n_embd=heads * data.draw(st.sampled_from([1, 4, 5])),
        n_head=heads,
        n_layer=2,
        n_positions=12,
        afn=data.draw(st.sampled_from(["gelu", "relu", "swish"])),
    )
    both = pair(transformers.OpenAIGPTLMHeadModel(config), 0)
    assert fused(both.ours.model, token=numbers(token))

    def run(model):
        return model(token, attention_mask=mask).logits

    assert_equal(both, "logits", {"token": numbers(token)}, run, mask.bool())


@few
@given(data=st.data())
def test_phi(data):
    groups, queries = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    token, mask, _ = data.draw(batches())
    share = data.draw(st.sampled_from([0.25, 0.5, 0.75, 1.0]))
    rotary = {"rope_type": "default", "rope_theta": 30.0, "partial_rotary_factor": share}
    config = transformers.PhiConfig(
        vocab_size=data.draw(st.integers(20, 30)),
        hidden_size=groups * queries * 8,
        num_attention_heads=groups * queries,
        num_key_value_heads=groups,
        intermediate_size=data.draw(st.integers(1, 9)),
        num_hidden_layers=2,
        max_position_embeddings=12,
        rope_parameters=rotary,
        tie_word_embeddings=data.draw(st.booleans()),
    )
    both = pair(transformers.PhiForCausalLM(config), 0)
    assert fused(both.ours.model, token=numbers(token))

    def run(model):
        return with_exact_numbers(model)(token, attention_mask=mask).logits

    assert_equal(both, "logits", {"token": numbers(token)}, run, mask.bool())
