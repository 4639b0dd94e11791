"""Llama-style decoders as Hugging Face saves them."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import llama as model
from edgewise.zoo.pretrained.architectures import bert
from edgewise.zoo.pretrained.schema import BadPretrained, Fields, TensorEntry, head_size, written

MODEL_TYPE, MODEL, OUTPUT = "llama", model, "logits"
ARCHITECTURES = {"LlamaForCausalLM": ("model.", ("logits",)), "LlamaModel": ("", ())}
NAMES = {
    **{k: v for k, v in bert.NAMES.items() if k != "activation"},
    **{"eps": "rms_norm_eps", "dropout": "attention_dropout"},
}
TIED = {"lm_head.weight": "model.embed_tokens.weight"}
STRETCH = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def read_config(fields: Fields) -> model.Config:
    for name in ("attention_bias", "mlp_bias"):
        fields.fixed(name, False)
    fields.fixed("hidden_act", "silu")
    found = fields.read(NAMES, eps=1e-6, dropout=0.0)
    heads = found["heads"]
    groups = fields.size("num_key_value_heads", default=heads)
    head_size(heads, groups, "num_attention_heads")
    d = fields.size("head_dim", default=found["size"] // heads, least=2)
    head_size(d, 2, "head_dim")
    base, stretch = _rotary(fields)
    return model.Config(
        **found,
        groups=groups,
        d=d,
        base=base,
        stretch=stretch,
        tied=fields.table.get("tie_word_embeddings") is True,
    )


def _rotary(fields: Fields) -> tuple[float, tuple[float, float, float, float] | None]:
    table_ = fields.table.get("rope_parameters") or fields.table.get("rope_scaling") or {}
    if not isinstance(table_, dict):
        raise BadPretrained(
            "the configuration has `rope_parameters` that is not a JSON object",
            help="give a JSON object",
        )
    inner = Fields({**fields.table, **table_})
    kind = table_.get("rope_type", table_.get("type", "default"))
    base = inner.number("rope_theta", default=10_000.0)
    if base < 1:
        raise BadPretrained(
            f"the configuration has `rope_theta` = {base}", help="it must be at least 1"
        )
    if kind == "default":
        return base, None
    if kind == "llama3":
        factor, low, high, length = (inner.number(name) for name in STRETCH)
        if not factor or not low < high:
            raise BadPretrained(
                "`rope_parameters` need factor > 0 and low_freq_factor < high_freq_factor",
                help="check them",
            )
        return base, (factor, low, high, length)
    raise BadPretrained(
        f"the configuration has rotary positions of the type {kind!r}"[:120],
        help="supported: `default` and `llama3`",
    )


def write_config(config: model.Config) -> dict[str, Any]:
    rotary: dict[str, Any] = {"rope_type": "default", "rope_theta": config.base}
    if config.stretch:
        rotary |= {"rope_type": "llama3", **dict(zip(STRETCH, config.stretch, strict=True))}
        rotary[STRETCH[-1]] = int(rotary[STRETCH[-1]])
    return {
        **written(config, NAMES),
        "num_key_value_heads": config.groups,
        "head_dim": config.d,
        "rope_parameters": rotary,
        "tie_word_embeddings": config.tied,
        "hidden_act": "silu",
    }


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield TensorEntry("word", f"{prefix}embed_tokens.weight")
    for i in range(config.layers):
        ours, theirs = f"layer.{i}", f"{prefix}layers.{i}"
        yield TensorEntry(f"{ours}.norm1.gain", f"{theirs}.input_layernorm.weight")
        yield TensorEntry(f"{ours}.q.weight", f"{theirs}.self_attn.q_proj.weight", joined=3)
        yield TensorEntry(f"{ours}.k.weight", f"{theirs}.self_attn.k_proj.weight", joined=2)
        yield TensorEntry(f"{ours}.v.weight", f"{theirs}.self_attn.v_proj.weight", joined=2)
        yield TensorEntry(f"{ours}.attended.weight", f"{theirs}.self_attn.o_proj.weight")
        yield TensorEntry(f"{ours}.norm2.gain", f"{theirs}.post_attention_layernorm.weight")
        for our, their in {"gate": "gate_proj", "up": "up_proj", "out": "down_proj"}.items():
            yield TensorEntry(f"{ours}.{our}.weight", f"{theirs}.mlp.{their}.weight")
    yield TensorEntry("out.gain", f"{prefix}norm.weight")


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    return {} if config.tied else {"logits": [TensorEntry("logits.weight", "lm_head.weight")]}
