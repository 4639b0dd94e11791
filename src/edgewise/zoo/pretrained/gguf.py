"""GGUF files: one file with weights, often quantised, the configuration and the tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.drawing import require_package
from edgewise.zoo.pretrained.architectures.llama import LLAMA
from edgewise.zoo.pretrained.fields import BadPretrained
from edgewise.zoo.pretrained.model import Pretrained
from edgewise.zoo.pretrained.schema import read_config
from edgewise.zoo.pretrained.tensors import Shape, TensorEntry, check_tensors, shapes_of, to_ours
from edgewise.zoo.pretrained.texts import checked

SIZES = {  # what GGUF calls the fields of a configuration
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "vocab_size": "vocab_size",
}
# fields without effect on the model
IDLE = ("tensor_data_layout", "rope.scaling.original_context_length", "rope.scaling.finetuned")
NAMES = {
    **{"attn_norm": "norm1.gain", "attn_q": "q.weight", "attn_k": "k.weight", "attn_v": "v.weight"},
    **{"attn_output": "attended.weight", "ffn_norm": "norm2.gain", "ffn_gate": "gate.weight"},
    **{"ffn_up": "up.weight", "ffn_down": "out.weight"},
}
SPLITS = ("default", "gpt-2", "smollm", "refact")
CONTROL = 3
ENDS = ("bos", "eos")


def read_gguf(path: Path, dtype: torch.dtype) -> Pretrained:
    """The model of a GGUF file of the Llama family; quantised weights are dequantised."""
    require_package("gguf")
    import gguf

    reader = _opened(path, gguf)
    fields = {name: _value(field) for name, field in reader.fields.items()}
    kind = fields.get("general.architecture")
    if kind != "llama":
        raise BadPretrained(
            f"unsupported GGUF architecture {kind!r}"[:120], help="supported: llama"
        )
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config = read_config(LLAMA, _table(fields, "output.weight" not in tensors))
    _refuse_others(fields, config)
    program = LLAMA.MODEL.program(config)
    shapes = {name: tuple(int(n) for n in t.shape)[::-1] for name, t in tensors.items()}
    listed = list(entries(config))
    check_tensors(listed, shapes, shapes_of(program), ["rope_freqs.weight"])
    if "rope_freqs.weight" in tensors:
        raise BadPretrained(
            "rotary frequencies in `rope_freqs.weight` are not supported",
            help="use a file without them",
        )
    theirs = {e.theirs: _tensor(tensors[e.theirs], gguf).to(dtype) for e in listed}
    weights = to_ours(listed, theirs, shapes_of(program))
    for name in weights:
        if name.endswith((".q.weight", ".k.weight")):
            weights[name] = _halves(weights[name])
    tokenizer = _tokenizer(fields, config.vocabulary)
    ends = {f"{name}_token_id": fields.get(f"tokenizer.ggml.{name}_token_id") for name in ENDS}
    table = LLAMA.write_config(config) | {
        name: token for name, token in ends.items() if token is not None
    }
    return Pretrained(LLAMA, "LlamaForCausalLM", config, program, weights, tokenizer, table, dtype)


def entries(config: Any) -> Iterator[TensorEntry]:
    """Our weights and their names in GGUF."""
    joined = {"q.weight": 3, "k.weight": 2, "v.weight": 2}
    yield TensorEntry("word", "token_embd.weight")
    for i in range(config.layers):
        for theirs, ours in NAMES.items():
            at = joined.get(ours, 1)
            yield TensorEntry(f"layer.{i}.{ours}", f"blk.{i}.{theirs}.weight", joined=at)
    yield TensorEntry("out.gain", "output_norm.weight")
    if not config.tied:
        yield TensorEntry("logits.weight", "output.weight")


def _opened(path: Path, gguf: Any) -> Any:
    if not path.is_file():
        raise BadPretrained(f"there is no file `{path}`", help="check the path")
    try:
        return gguf.GGUFReader(str(path))
    except Exception as problem:  # the package has no error of its own
        raise BadPretrained(
            f"`{path.name}` is not a GGUF file, truncated or corrupt: {str(problem)[:120]}",
            help="fetch it again",
        ) from None


def _value(field: Any) -> Any:
    try:
        return field.contents()
    except Exception:  # as above
        return None


def _table(fields: Mapping[str, Any], tied: bool) -> dict[str, Any]:
    found = {
        theirs: fields[f"llama.{name}"]
        for name, theirs in SIZES.items()
        if f"llama.{name}" in fields
    }
    tokens = fields.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list):
        found.setdefault("vocab_size", len(tokens))
    return {**found, "tie_word_embeddings": tied}


def _refuse_others(fields: Mapping[str, Any], config: Any) -> None:
    """What a file says about the model beyond sizes is what the rules do, or it is refused."""
    usual = {
        **dict.fromkeys(("rope.dimension_count", "attention.value_length"), config.d),
        **{"rope.scaling.type": "none", "rope.scale_linear": 1.0, "attention.causal": True},
    }
    for name, value in fields.items():
        kind, _, inner = name.partition(".")
        if kind != "llama" or inner in SIZES or inner in IDLE:
            continue
        if (value or inner in usual) and value != usual.get(inner):  # 0 says nothing
            raise BadPretrained(
                f"the file says `{name}` = {value!r:.60}", help="the rules do not support it"
            )


def _tensor(tensor: Any, gguf: Any) -> Tensor:
    try:
        return torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
    except (NotImplementedError, ValueError) as problem:
        raise BadPretrained(
            f"the tensor `{tensor.name}` cannot be read: {str(problem)[:120]}",
            help="quantise it in another way, such as Q8_0",
        ) from None


def _halves(weight: Tensor) -> Tensor:
    """GGUF rotates features 2c and 2c + 1, the rules c and c + d/2: rows in the order of the rules.

    >>> _halves(torch.arange(4.0).reshape(1, 4, 1)).flatten().tolist()
    [0.0, 2.0, 1.0, 3.0]
    """
    *lead, d, size = weight.shape
    pairs = weight.reshape(*lead, d // 2, 2, size)
    return pairs.transpose(-2, -3).reshape(weight.shape)


def _tokenizer(fields: Mapping[str, Any], vocabulary: int) -> Any:
    """Byte-pair encoding as the file describes it; None for other kinds."""
    tokens, merges = fields.get("tokenizer.ggml.tokens"), fields.get("tokenizer.ggml.merges")
    kind, split = fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2" or split not in SPLITS or not tokens or not merges:
        return None
    require_package("tokenizers")
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    words = {token: k for k, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    made = Tokenizer(models.BPE(words, pairs))
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Digits(individual_digits=True)
    apart = split in ("smollm", "refact")
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_]) if apart else bytes_
    made.decoder = decoders.ByteLevel()
    kinds = fields.get("tokenizer.ggml.token_type") or []
    special = [t for t, k in zip(tokens, kinds, strict=False) if k == CONTROL]
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    first = fields.get("tokenizer.ggml.bos_token_id")
    if fields.get("tokenizer.ggml.add_bos_token") is True and first in range(len(tokens)):
        begun = processors.TemplateProcessing(
            single=[tokens[first], "$A"], special_tokens=[(tokens[first], first)]
        )
        made.post_processor = processors.Sequence([begun])
    return checked(made, vocabulary)


__all__ = ["Shape", "entries", "read_gguf"]
