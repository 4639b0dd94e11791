"""BART, mBART and Marian as Hugging Face saves them: an entry of FAMILY each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from edgewise.zoo import bart as model
from edgewise.zoo.pretrained.fields import Fields, written
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, linear, norm

NAMES = {
    "size": "d_model",
    "heads": "encoder_attention_heads",
    "vocabulary": "vocab_size",
    "hidden": "encoder_ffn_dim",
    "layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "length": "max_position_embeddings",
    "activation": "activation_function",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
}
SAME = {"decoder_attention_heads": "heads", "decoder_ffn_dim": "hidden"}
SUBLAYERS = {  # ours → the sum that it ends in, theirs
    "self": ("attended", "self_attn"),
    "cross": ("crossed", "encoder_attn"),
}
TOKENS = {"decoder_start_token_id": 2, "pad_token_id": 1, "eos_token_id": 2}


@dataclass(frozen=True)
class BartVariant:
    """An encoder–decoder of the family: its classes, and fields that `config.json` does not have.

    `tokens` are the special tokens of a model that was not read from a checkpoint.
    """

    MODEL_TYPE: str
    body: str
    generates: str
    constants: Mapping[str, Any]
    tokens: Mapping[str, int | None]
    two_vocabularies: bool = False

    MODEL: ModuleType = model
    OUTPUT: str = "logits"
    OPTIONAL: tuple[str, ...] = ()

    @property
    def ARCHITECTURES(self) -> dict[str, Architecture]:
        return {
            self.generates: Architecture("model.", ("logits",)),
            self.body: Architecture("", (), "decoder.out"),
        }

    @property
    def TIED(self) -> dict[str, str]:
        found = {"lm_head.weight": "model.shared.weight"}
        for side in ("encoder", "decoder"):
            for prefix in ("model.", ""):
                found[f"{prefix}{side}.embed_tokens.weight"] = f"{prefix}shared.weight"
                if self.constants["positions"] == "sinusoidal":  # computed, not learned
                    found[f"{prefix}{side}.embed_positions.weight"] = ""
        return found

    def read_config(self, fields: Fields) -> model.Config:
        fields.fixed("tie_word_embeddings", True)
        scaled = fields.flag("scale_embedding", default=False)
        found = sizes(fields)
        found |= self.vocabularies(fields, found["vocabulary"])
        if self.constants["positions"] == "sinusoidal":
            fields.divided(found["size"], 2, "d_model", "numbers: sines and cosines")
        return model.Config(**found, **self.constants, scaled=scaled)

    def vocabularies(self, fields: Fields, words: int) -> dict[str, int]:
        """One for both sides or, of Marian, two: then `vocab_size` is that of the source."""
        if not self.two_vocabularies:
            fields.fixed("share_encoder_decoder_embeddings", True)
        elif not fields.flag("share_encoder_decoder_embeddings", default=True):
            theirs = fields.size("decoder_vocab_size", default=words)
            return {"vocabulary": theirs, "source_vocabulary": words}
        fields.equal("decoder_vocab_size", "vocab_size", words)
        return {}

    def write_config(self, config: model.Config) -> dict[str, Any]:
        found = written_sizes(config) | {"scale_embedding": config.scaled, **self.tokens}
        if self.two_vocabularies and config.source_vocabulary is not None:
            found |= {"vocab_size": config.source_vocabulary}
            found |= {"decoder_vocab_size": config.vocabulary}
            found |= {"share_encoder_decoder_embeddings": False}
        return found

    def entries(self, config: model.Config, prefix: str) -> Iterator[TensorEntry]:
        if config.source_vocabulary is None:
            yield TensorEntry("word", f"{prefix}shared.weight")
        else:
            yield TensorEntry("encoder.word", f"{prefix}encoder.embed_tokens.weight")
            yield TensorEntry("word", f"{prefix}decoder.embed_tokens.weight")
        for side in ("encoder", "decoder"):
            if config.positions == "learned":
                at = f"{prefix}{side}.embed_positions.weight"
                yield TensorEntry(f"{side}.position", at)
            if config.normed:
                yield from norm(f"{side}_embedded", f"{prefix}{side}.layernorm_embedding")
        yield from both_stacks(config, prefix)

    def task_heads(self, config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
        shape = (1, config.vocabulary)
        return {"logits": [TensorEntry("logits.bias", "final_logits_bias", shape=shape)]}


def sizes(fields: Fields) -> dict[str, Any]:
    """What the configurations of encoder–decoders have in common."""
    found = fields.read(NAMES, activation="gelu", dropout=0.1, attention_dropout=0.0)
    found["activation_dropout"] = fields.rate("activation_dropout")
    for theirs, ours in SAME.items():
        fields.size(theirs)
        fields.equal(theirs, NAMES[ours], found[ours])
    return found


def written_sizes(config: model.Config) -> dict[str, Any]:
    return {
        **written(config, NAMES),
        **written(config, {ours: theirs for theirs, ours in SAME.items()}),
        "activation_dropout": config.hidden_dropout,
        "is_encoder_decoder": True,
    }


def both_stacks(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    """The layers of the encoder and of the decoder, and the norms at their ends."""
    for side, layers in {"encoder": config.layers, "decoder": config.decoder_layers}.items():
        for i in range(layers):
            yield from layer(config, f"{side}.layer.{i}", f"{prefix}{side}.layers.{i}", side)
        if config.norm == "pre":
            yield from norm(f"{side}.out", f"{prefix}{side}.layer_norm")


def layer(config: model.Config, ours: str, theirs: str, side: str) -> Iterator[TensorEntry]:
    inside = config.norm == "pre"
    end = "" if inside else "_sum"
    for name, (total, other) in SUBLAYERS.items():
        if name == "cross" and side == "encoder":
            continue
        for q in "qkv":
            at, bias = f"{theirs}.{other}.{q}_proj", q != "k" or config.KEY_BIAS
            yield from linear(f"{ours}.{name}.{q}", at, joined=2, bias=bias)
        yield from linear(f"{ours}.{total}{end}", f"{theirs}.{other}.out_proj")
        read = f"{name}_norm" if inside else total
        yield from norm(f"{ours}.{read}", f"{theirs}.{other}_layer_norm")
    yield from linear(f"{ours}.mlp", f"{theirs}.fc1")
    yield from linear(f"{ours}.out{end}", f"{theirs}.fc2")
    yield from norm(f"{ours}.{'mlp_norm' if inside else 'out'}", f"{theirs}.final_layer_norm")


BART = {"positions": "learned", "norm": "post", "normed": True}
FAMILY = (
    BartVariant("bart", "BartModel", "BartForConditionalGeneration", BART, TOKENS),
    BartVariant(
        "mbart", "MBartModel", "MBartForConditionalGeneration", {**BART, "norm": "pre"},
        {"pad_token_id": 1, "eos_token_id": 2},
    ),
    BartVariant(
        "marian", "MarianModel", "MarianMTModel",
        {"positions": "sinusoidal", "norm": "post", "normed": False},
        {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 0},
        two_vocabularies=True,
    ),
)  # fmt: skip
