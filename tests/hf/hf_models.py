"""Tiny random models of Hugging Face, and an attention of plain torch to compare with."""

import torch
from torch import nn

SIZES = {"hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2}
WIDE = {**SIZES, "intermediate_size": 24}
TEXT = {**WIDE, "vocab_size": 29, "max_position_embeddings": 64}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def bert():
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**TEXT, **QUIET))


def roberta():
    from transformers import RobertaConfig, RobertaModel

    return RobertaModel(RobertaConfig(**TEXT, **QUIET, pad_token_id=1))


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_embd": 16, "n_head": 4, "n_layer": 2, "n_positions": 64}
    quiet = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    ends = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=29, **sizes, **quiet, **ends))


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    ends = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
    return LlamaForCausalLM(LlamaConfig(**TEXT, **ends, num_key_value_heads=2))


def mistral():
    from transformers import MistralConfig, MistralForCausalLM

    ends = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
    sizes = {"num_key_value_heads": 2, "sliding_window": 4}
    return MistralForCausalLM(MistralConfig(**TEXT, **ends, **sizes))


def vit():
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig(**WIDE, image_size=12, patch_size=4, num_channels=1))


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4}
    ends = {"decoder_start_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
    return T5ForConditionalGeneration(T5Config(vocab_size=29, dropout_rate=0.0, **sizes, **ends))


def gemma2():
    from transformers import Gemma2Config, Gemma2ForCausalLM

    sizes = {"num_key_value_heads": 2, "head_dim": 4, "attn_logit_softcapping": 2.0}
    ends = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
    return Gemma2ForCausalLM(Gemma2Config(**TEXT, **sizes, **ends, sliding_window=4))


def gpt_oss():
    from transformers import GptOssConfig, GptOssForCausalLM

    sizes = {"num_key_value_heads": 2, "head_dim": 4, "num_local_experts": 2, "sliding_window": 4}
    ends = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
    config = GptOssConfig(**TEXT, **sizes, **ends, num_experts_per_tok=1)
    model = GptOssForCausalLM._from_config(config, experts_implementation="eager")
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks)
    return model


class BySample(list):
    """Graphs of samples for the reference: (samples, heads, n, n)."""

    def dense(self, n):
        parts = [graph.dense(n) for graph in self]
        return torch.stack([p.expand(4, n, n) for p in parts])


def built(make, dtype=torch.float64):
    torch.manual_seed(0)
    return make().to(dtype).eval()


def register_reference(graphs):
    """Softmax over a boolean matrix, written out; `graphs` has one for each layer.

    Returns the name to give to `set_attn_implementation`.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    def attention(
        module,
        query,
        key,
        value,
        attention_mask,
        dropout=0.0,
        scaling=None,
        position_bias=None,
        softcap=None,
        s_aux=None,
        **_,
    ):
        layer = getattr(module, "layer_idx", None) or 0
        if attention_mask is None:
            attention_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool)
        graph = graphs[layer] if isinstance(graphs, list | tuple) else graphs
        n, m = query.shape[-2], key.shape[-2]
        allowed = graph.dense(m)[..., m - n :, :] & attention_mask
        groups = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
        scores = query @ key.transpose(-1, -2) * scaling
        scores = scores if softcap is None else softcap * (scores / softcap).tanh()
        scores = scores if position_bias is None else scores + position_bias
        scores = scores.masked_fill(~allowed, -torch.inf)
        if s_aux is not None:
            sink = s_aux.to(scores)[:, None, None].expand(*scores.shape[:-1], 1)
            scores = torch.cat([scores, sink], -1)
        weights = scores.softmax(-1).nan_to_num(0.0)[..., :m]
        return (weights @ value).transpose(1, 2), weights

    def mask(*args, **kwargs):
        kwargs |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
        return sdpa_mask(*args, **kwargs)

    AttentionInterface.register("plain", attention)
    AttentionMaskInterface.register("plain", mask)
    return "plain"


def gradients(model: nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {n: g for n, g in zip(named, found, strict=True) if g is not None}


def checkpoint_activations(model) -> None:
    """Recompute activations in the backward pass; transformers 5.23 has another name for it."""
    named = getattr(model, "activation_checkpointing_enable", None)
    (named or model.gradient_checkpointing_enable)()
