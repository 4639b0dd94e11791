"""Neighbourhoods of patches as the attention of vision models."""

import copy

import hf_models as models
import pytest
import torch

from edgewise import EdgewiseError, hf
from edgewise.graphs import extra_global_tokens, full, grid, window

SIZES = {**models.WIDE, "image_size": (12, 20), "patch_size": 4, "num_channels": 1}


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(**SIZES, num_labels=3))


def deit():
    from transformers import DeiTConfig, DeiTModel

    return DeiTModel(DeiTConfig(**SIZES))


def dinov2_with_registers():
    from transformers import Dinov2WithRegistersConfig, Dinov2WithRegistersModel

    sizes = {**SIZES, "image_size": 12, "num_register_tokens": 3}
    return Dinov2WithRegistersModel(Dinov2WithRegistersConfig(**sizes))


def siglip():
    from transformers import SiglipVisionConfig, SiglipVisionModel

    sizes = {**SIZES, "image_size": 12}
    return SiglipVisionModel(SiglipVisionConfig(**sizes, vision_use_head=False))


def clip_vision():
    from transformers import CLIPVisionConfig, CLIPVisionModel

    return CLIPVisionModel(CLIPVisionConfig(**{**SIZES, "image_size": 12}))


def clip():
    from transformers import CLIPConfig, CLIPModel

    text = {**models.TEXT, "eos_token_id": 28, "bos_token_id": 0, "pad_token_id": 1}
    vision = {**SIZES, "image_size": 12}
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=8))


def beit():
    """The positions of patches are added to the mask."""
    from transformers import BeitConfig, BeitModel

    sizes = {**SIZES, "image_size": 12, "use_relative_position_bias": True}
    model = BeitModel(BeitConfig(**sizes))
    for name, table in model.named_parameters():
        if name.endswith("relative_position_bias_table"):
            torch.nn.init.normal_(table)
    return model


def swin():
    from transformers import SwinConfig, SwinModel

    sizes = {"image_size": 32, "patch_size": 2, "num_channels": 1, "embed_dim": 8, "window_size": 4}
    return SwinModel(SwinConfig(**sizes, depths=[2, 1], num_heads=[2, 4]))


def near(height, width):
    return grid(height, width)(window(1), window(1))


GRAPHS = {
    "vit": (vit, extra_global_tokens(1, near(3, 5)), (12, 20)),
    "deit": (deit, extra_global_tokens(2, near(3, 5)), (12, 20)),
    "registers": (dinov2_with_registers, extra_global_tokens(4, near(3, 3)), (12, 12)),
    "siglip": (siglip, near(3, 3), (12, 12)),
    "clip": (clip_vision, extra_global_tokens(1, near(3, 3)), (12, 12)),
    "beit": (beit, extra_global_tokens(1, near(3, 3)), (12, 12)),
    "swin": (swin, near(4, 4), (32, 32)),
}


def images(size):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 1, *size, generator=generator, dtype=torch.float64)


def output(model, x):
    found = model(x)
    return found.logits if "logits" in found else found.last_hidden_state


def reference(model, graph):
    """Transformers' own attention in float64, with a mask that is added to the model's own."""
    from transformers import AttentionInterface

    other = copy.deepcopy(model)

    def attention(module, query, key, value, attention_mask, scaling=None, **_):
        scores = query @ key.transpose(-1, -2) * scaling
        scores = scores if attention_mask is None else scores + attention_mask
        scores = scores.masked_fill(~graph.dense(query.shape[-2]), -torch.inf)
        weights = scores.softmax(-1)
        return (weights @ value).transpose(1, 2), weights

    AttentionInterface.register("masked", attention)
    other.set_attn_implementation("masked")
    return other


@pytest.mark.parametrize("name", GRAPHS)
def test_a_neighbourhood_is_a_mask(name):
    make, wanted, size = GRAPHS[name]
    model = models.built(make)
    graph = hf.neighbourhood(model, 1)
    assert graph == wanted
    x = images(size)
    other, dense = reference(model, graph), output(model, x)
    hf.use(model, graph)
    ours, theirs = output(model, x), output(other, x)
    torch.testing.assert_close(ours, theirs)
    assert not torch.allclose(ours, dense)
    mine, yours = (
        models.gradients(m, y.square().sum()) for m, y in ((model, ours), (other, theirs))
    )
    for key in mine:
        torch.testing.assert_close(mine[key], yours[key])
    torch.testing.assert_close(
        model(x, output_attentions=True).attentions[0].to_dense(),
        other(x, output_attentions=True).attentions[0],
    )


def test_the_vision_tower_alone(tmp_path):
    """Text keeps its own attention; both towers are saved and loaded."""
    model = models.built(clip)
    batch = {"pixel_values": images((12, 12)), "input_ids": torch.tensor([[3, 4, 28], [5, 28, 28]])}
    dense = model(**batch)
    hf.use(model, {"vision_model": hf.neighbourhood(model, 1)})
    found = model(**batch)
    torch.testing.assert_close(found.text_embeds, dense.text_embeds)
    other = copy.deepcopy(hf.restore(copy.deepcopy(model)).vision_model)
    wanted = reference(other, hf.neighbourhood(model, 1))(batch["pixel_values"]).pooler_output
    wanted = model.visual_projection(wanted)
    torch.testing.assert_close(found.image_embeds, wanted / wanted.norm(dim=-1, keepdim=True))
    model.save_pretrained(tmp_path)
    loaded = hf.load(tmp_path, dtype=torch.float64).eval()
    assert hf.graph_of(loaded) == {"vision_model": extra_global_tokens(1, near(3, 3))}
    torch.testing.assert_close(loaded(**batch).image_embeds, found.image_embeds)


def test_images_of_another_size():
    model = models.built(models.vit)
    hf.use(model, hf.neighbourhood(model, 1))
    with pytest.raises(EdgewiseError) as caught:
        model(images((16, 24)), interpolate_pos_encoding=True)
    assert caught.value.code == "graph-length"
    hf.use(model, hf.neighbourhood(model, 1, image_size=(16, 24)))
    out = model(images((16, 24)), interpolate_pos_encoding=True)
    assert out.last_hidden_state.shape == (2, 1 + 4 * 6, 16)


def test_a_radius_as_wide_as_the_image_is_dense():
    model, x = models.built(vit), images((12, 20))
    dense = output(model, x)
    torch.testing.assert_close(output(hf.use(model, hf.neighbourhood(model, 5)), x), dense)
    torch.testing.assert_close(output(hf.use(model, full()), x), dense)


def test_a_model_of_text_has_no_patches():
    with pytest.raises(EdgewiseError, match="image_size"):
        hf.neighbourhood(models.built(models.bert), 1)
    with pytest.raises(EdgewiseError, match="radius"):
        hf.neighbourhood(models.built(vit), -1)
    with pytest.raises(EdgewiseError) as caught:
        hf.use(models.built(clip), {"vision_tower": window(1)})
    assert "vision_model" in caught.value.help
