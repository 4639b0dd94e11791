"""DeBERTa v2 and v3 as Hugging Face saves them."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import deberta_v2 as model
from edgewise.zoo.pretrained.architectures import bert, deberta
from edgewise.zoo.pretrained.architectures.deberta import OPTIONAL as OPTIONAL
from edgewise.zoo.pretrained.architectures.deberta import TIED as TIED
from edgewise.zoo.pretrained.architectures.deberta import task_heads as task_heads
from edgewise.zoo.pretrained.fields import Fields, written
from edgewise.zoo.pretrained.tensors import TensorEntry, layers, linear, norm, taps

MODEL_TYPE, MODEL, OUTPUT = "deberta-v2", model, "embedding"
ARCHITECTURES = bert.architectures("DebertaV2", "deberta.")
LAYER = deberta.LAYER | {
    name: f"attention.self.{other}_proj"
    for name, other in {"q": "query", "k": "key", "v": "value"}.items()
}


def read_config(fields: Fields) -> model.Config:
    found = deberta.sizes(fields)
    said = fields.table.get("position_buckets", -1)
    buckets = 0 if isinstance(said, int) and said < 1 else fields.size("position_buckets", least=4)
    if buckets and not buckets // 2 < found["reach"] - 1:
        wanted = "less than twice the relative positions"
        fields.refuse("position_buckets", buckets, wanted, None)
    return model.Config(
        **found,
        **convolution(fields),
        buckets=buckets,
        shared=fields.flag("share_att_key", default=False),
        place_norm=fields.choice("norm_rel_ebd", "none", "layer_norm") == "layer_norm",
    )


def convolution(fields: Fields) -> dict[str, Any]:
    said = fields.table.get("conv_kernel_size")
    if said in (0, None):
        return {}
    fields.fixed("conv_groups", 1, None)
    kernel = fields.size("conv_kernel_size")
    if kernel % 2 == 0:
        fields.refuse("conv_kernel_size", kernel, "an odd number", None)
    return {"kernel": kernel, "kernel_activation": fields.activation("conv_act", default="tanh")}


def write_config(config: model.Config) -> dict[str, Any]:
    taps = {"conv_kernel_size": config.kernel} | written(config, {"kernel_activation": "conv_act"})
    return deberta.write_config(config) | {
        **(taps if config.kernel else {}),
        "position_buckets": config.buckets or -1,
        "share_att_key": config.shared,
        "norm_rel_ebd": "layer_norm" if config.place_norm else "none",
    }


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield from deberta.tables(config, prefix)
    if config.place_norm:
        yield from norm("place", f"{prefix}encoder.LayerNorm")
    yield from layers(config, "layer", f"{prefix}encoder.layer", LAYER)
    for i in range(0 if config.shared else config.layers):
        at = f"{prefix}encoder.layer.{i}.attention.self"
        yield from linear(f"layer.{i}.place_k", f"{at}.pos_key_proj", joined=2)
        yield from linear(f"layer.{i}.place_q", f"{at}.pos_query_proj", joined=2)
    if config.kernel:
        at, shape = f"{prefix}encoder.conv", (config.size, config.size, config.kernel)
        yield from taps("layer.0.conv", f"{at}.conv", shape)
        yield from norm("layer.0.convolved", f"{at}.LayerNorm")
