"""Decoders of the Llama family against `transformers`, in float64: logits, gradients, and back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_parity import batches, few
from theirs import (
    KeepDouble,
    assert_equal,
    fused,
    pair,
    saved_and_read,
    transformers,
    with_exact_numbers,
)

from edgewise import numbers
from edgewise.zoo.pretrained.architectures import MODEL_TYPES
from edgewise.zoo.pretrained.fields import BadPretrained
from edgewise.zoo.pretrained.schema import read_config

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


@pytest.mark.parametrize("name", ["Mistral", "Qwen3", "Gemma"])
def test_heads_of_a_size_of_their_own_need_not_divide_the_rows(name):
    config = getattr(transformers, f"{name}Config")(
        vocab_size=20, hidden_size=7, num_attention_heads=3, num_key_value_heads=1, head_dim=4,
        intermediate_size=5, num_hidden_layers=2, max_position_embeddings=16,
    )  # fmt: skip
    both = pair(getattr(transformers, f"{name}ForCausalLM")(config), 0)
    token = torch.randint(3, 20, (2, 9))

    def run(model):
        return with_exact_numbers(model)(token).logits

    assert_equal(both, "logits", {"token": numbers(token)}, run)


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


LISTS = {"short_factor": [1.5, 2.0], "long_factor": [3.0, 5.0]}
THETA = {"rope_theta": 30.0}
SCALED = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 0.2, "high_freq_factor": 1.5,
        "original_max_position_embeddings": 6,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
    "yarn with a ramp": {
        "rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 12,
        "beta_fast": 1.5, "beta_slow": 0.1, "truncate": False, "mscale": 0.7, "mscale_all_dim": 0.3,
    },
    "yarn with a temperature": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1.3},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "longrope": {"rope_type": "longrope", **LISTS, "original_max_position_embeddings": 7},
    "longrope with a factor": {
        "rope_type": "longrope", **LISTS, "original_max_position_embeddings": 7, "factor": 6.0,
    },
}  # fmt: skip
SMALL_DECODER = {
    "vocab_size": 20, "hidden_size": 8, "intermediate_size": 5, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 10,
    "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip


@pytest.mark.parametrize("kind", SCALED)
@pytest.mark.parametrize("length", [5, 9, 14])
def test_scaled_rotary_positions(kind, length):
    """Shorter than texts of training, than texts of the model, and longer than all."""
    phi = kind == "longrope"
    name, own = ("Phi3", {"original_max_position_embeddings": 7}) if phi else ("Llama", {})
    table = {**SMALL_DECODER, **own, "rope_parameters": {**THETA, **SCALED[kind]}}
    config = getattr(transformers, f"{name}Config")(**table)
    both = pair(getattr(transformers, f"{name}ForCausalLM")(config), 0)
    token = torch.arange(2 * length).reshape(2, length) % 17 + 3

    def run(model):
        return with_exact_numbers(model)(token).logits

    assert fused(both.ours.model, token=numbers(token))
    assert_equal(both, "logits", {"token": numbers(token)}, run)


@pytest.mark.parametrize("kind", ["su", "yarn"])
def test_old_names_of_longrope(kind):
    """As the first files of Phi-3 had it: the type in `rope_scaling`, the length outside."""
    outside = {**SMALL_DECODER, "original_max_position_embeddings": 7, "rope_theta": 30.0}
    old = read_config(MODEL_TYPES["phi3"], {**outside, "rope_scaling": {"type": kind, **LISTS}})
    new = {**THETA, "rope_type": "longrope", **LISTS}
    table = transformers.Phi3Config(
        **SMALL_DECODER, original_max_position_embeddings=7, rope_parameters=new
    ).to_dict()
    assert old.scaling == read_config(MODEL_TYPES["phi3"], table).scaling
    assert old.scaling.length == 7
    assert old.base == 30.0


BAD_SCALING = {
    "an unknown type": {"rope_type": "spiral"},
    "no factor": {"rope_type": "yarn", "factor": 0},
    "too few numbers": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0, 2.0]},
    "words": {"rope_type": "longrope", "short_factor": ["a", "b"], "long_factor": [1.0, 2.0]},
    "no order": {
        "rope_type": "llama3", "factor": 2, "low_freq_factor": 3, "high_freq_factor": 1,
    },
    "a list": {"rope_type": [1]},
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_SCALING)
def test_bad_scalings_are_refused(case):
    table = {**SMALL_DECODER, "rope_parameters": BAD_SCALING[case]}
    with pytest.raises(BadPretrained):
        read_config(MODEL_TYPES["llama"], table)


def test_the_text_part_of_gemma_3(tmp_path):
    text = {
        **SMALL_DECODER, "head_dim": 4, "sliding_window": 3,
        "layer_types": ["sliding_attention", "full_attention"],
    }  # fmt: skip
    vision = {
        "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 1,
        "num_attention_heads": 2, "image_size": 4, "patch_size": 2,
    }  # fmt: skip
    config = transformers.Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=1
    )
    torch.manual_seed(0)
    model = transformers.Gemma3ForConditionalGeneration(config).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.tie_weights()
    ours = saved_and_read(model)
    token = torch.arange(14).reshape(2, 7) + 3
    with torch.no_grad(), KeepDouble():
        expected = with_exact_numbers(model)(token).logits
        found = ours.model(token=numbers(token))
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
        ours.save_pretrained(tmp_path / "text")
        again = transformers.Gemma3ForCausalLM.from_pretrained(
            tmp_path / "text", dtype=torch.float64
        )
        again = with_exact_numbers(again.eval())(token).logits
    torch.testing.assert_close(again, expected, atol=1e-9, rtol=1e-9)
