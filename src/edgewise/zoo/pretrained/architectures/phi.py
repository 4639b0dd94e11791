"""Phi (1, 1.5 and 2) as Hugging Face saves it."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import phi as model
from edgewise.zoo.pretrained.architectures import bert
from edgewise.zoo.pretrained.fields import Fields, written
from edgewise.zoo.pretrained.rope import parameters, read_rotary, written_rotary
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, linear, norm

MODEL_TYPE, MODEL, OUTPUT = "phi", model, "logits"
ARCHITECTURES = {
    "PhiForCausalLM": Architecture("model.", ("logits",)),
    "PhiModel": Architecture("", (), "out"),
}
OPTIONAL: tuple[str, ...] = ()
NAMES = {k: v for k, v in bert.NAMES.items() if k != "attention_dropout"}
NAMES |= {"dropout": "attention_dropout"}
RATES = {"embedding_dropout": "embd_pdrop", "residual_dropout": "resid_pdrop"}
LAYER = {
    **{name: f"self_attn.{name}_proj" for name in "qkv"},
    **{"attended": "self_attn.dense", "mlp": "mlp.fc1", "out": "mlp.fc2"},
}
TIED = {"lm_head.weight": "model.embed_tokens.weight"}


def read_config(fields: Fields) -> model.Config:
    fields.fixed("qk_layernorm", False)
    found = fields.read(NAMES, activation="gelu_new", eps=1e-5, dropout=0.0)
    heads = found["heads"]
    groups = fields.size("num_key_value_heads", default=heads)
    fields.divided(heads, groups, "num_attention_heads")
    d = fields.size("head_dim", default=found["size"] // heads, least=2)
    rates: dict[str, Any] = {ours: fields.rate(theirs) for ours, theirs in RATES.items()}
    return model.Config(
        **found,
        **read_rotary(fields, parameters(fields), d, part=0.5),
        **rates,
        groups=groups,
        d=d,
        tied=fields.flag("tie_word_embeddings", default=False),
    )


def write_config(config: model.Config) -> dict[str, Any]:
    share = {"partial_rotary_factor": (config.rotated or config.d) / config.d}
    return {
        **written(config, NAMES | RATES),
        "num_key_value_heads": config.groups,
        "head_dim": config.d,
        "rope_parameters": written_rotary(config) | share,
        "tie_word_embeddings": config.tied,
    }


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield TensorEntry("word", f"{prefix}embed_tokens.weight")
    for i in range(config.layers):
        ours, theirs = f"layer.{i}", f"{prefix}layers.{i}"
        yield from norm(f"{ours}.norm", f"{theirs}.input_layernorm")
        for name, other in LAYER.items():
            joined = {"q": 3, "k": 2, "v": 2}.get(name, 1)
            yield from linear(f"{ours}.{name}", f"{theirs}.{other}", joined=joined)
    yield from norm("out", f"{prefix}final_layernorm")


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    return {"logits": linear("logits", "lm_head")[1 if config.tied else 0 :]}
