"""CLIP's towers against `transformers`, in float64: values, gradients, and back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_parity import few
from theirs import assert_equal, pair, transformers

from edgewise import numbers

END = 3


@st.composite
def towers(draw):
    """The configurations of both, of different sizes."""
    heads = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    act, space = draw(st.sampled_from(["quick_gelu", "gelu"])), draw(st.integers(1, 5))
    sizes = [
        {
            "hidden_size": h * draw(st.sampled_from([2, 5])), "num_attention_heads": h,
            "intermediate_size": draw(st.integers(1, 7)), "num_hidden_layers": 2,
            "hidden_act": act, "projection_dim": space,
        }
        for h in heads
    ]  # fmt: skip
    text = sizes[0] | {"vocab_size": 20, "max_position_embeddings": 9, "eos_token_id": END}
    image, patch = draw(st.sampled_from([(4, 2), (6, 3), (3, 1)]))
    return text, sizes[1] | {"image_size": image, "patch_size": patch, "num_channels": 2}, space


def texts():
    token = torch.randint(4, 20, (2, 7))
    token[0, 6], token[1, 4:] = END, END
    end = torch.zeros(2, 7, 1, dtype=torch.float64)
    end[0, 6], end[1, 4] = 1, 1
    return token, {"token": numbers(token), "end": end}


@pytest.mark.parametrize("projected", [False, True])
@few
@given(sizes=towers())
def test_towers(projected, sizes):
    text, vision, _ = sizes
    suffix = "WithProjection" if projected else ""
    token, inputs = texts()
    kind = getattr(transformers, f"CLIPTextModel{suffix}")
    both = pair(kind(transformers.CLIPTextConfig(**text)), 0)

    def pooled(found):
        return found[0] if projected else found.pooler_output

    assert_equal(both, both.ours.output, inputs, lambda model: pooled(model(token)))
    kind = getattr(transformers, f"CLIPVisionModel{suffix}")
    both = pair(kind(transformers.CLIPVisionConfig(**vision)), 0)
    side = vision["image_size"]
    pixel = torch.randn(2, 2, side, side, dtype=torch.float64)
    inputs = {"pixel": pixel[..., None]}
    assert_equal(both, both.ours.output, inputs, lambda model: pooled(model(pixel)))


@few
@given(sizes=towers())
def test_how_well_a_text_and_an_image_fit(sizes):
    text, vision, space = sizes
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=space)
    both = pair(transformers.CLIPModel(config), 0)
    token, inputs = texts()
    side = vision["image_size"]
    pixel = torch.randn(2, 2, side, side, dtype=torch.float64)

    def run(model):
        return model(input_ids=token, pixel_values=pixel).logits_per_text.diagonal()

    assert_equal(both, "logits", inputs | {"pixel": pixel[..., None]}, run)
