"""What differs between the architectures of transformers, by name: a new one is an entry here.

Any model that looks up its attention function in `ALL_ATTENTION_FUNCTIONS` works; these tables say
what its modules, config fields, arguments and masks are called.
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from edgewise.graphs import blocks, causal, full, window
from edgewise.graphs.pattern import Pattern

# Embedding modules of learned positions, and config fields with their number.
POSITION_TABLES = ("position_embeddings", "wpe", "embed_positions", "position_embedding")
POSITION_FIELDS = ("max_position_embeddings", "n_positions")
ROTARY_CLASS = "RotaryEmbedding"  # in the name of a module class
# Parameters of tokens before the patches of an image.
SPECIAL_TOKENS = ("cls_token", "class_embedding", "distillation_token", "register_tokens")
# Attributes of an attention module or its config with the number of query heads.
HEAD_FIELDS = ("num_heads", "num_attention_heads", "n_heads")
# In the lower-case path of a cross-attention module, which stays dense.
CROSS_ATTENTION = ("crossattention", "encoder_attn", "encdecattention", "cross_attn")
# Arguments of an attention function that the mask already expresses, or that do not concern it.
IGNORED_ARGUMENTS = {
    *("position_ids", "cache_position", "use_cache", "is_causal", "sliding_window", "layer_idx"),
    *("output_hidden_states", "return_dict", "num_items_in_batch", "position_embeddings"),
}
FLASH = "an argument of flash attention: packed rows come as `position_ids`"
UNSUPPORTED_ARGUMENTS = {
    **{f"cu_seq_lens_{side}": FLASH for side in "qk"},
    **{f"max_length_{side}": FLASH for side in "qk"},
}
# Mask functions of `transformers.masking_utils`, from the values their closures hold.
MASK_FUNCTIONS: dict[str, Callable[[dict[str, Any]], Pattern]] = {
    "causal_mask_function": lambda values: causal(),
    "bidirectional_mask_function": lambda values: full(),
    # always combined with causal: j > i - w
    "sliding_window_overlay": lambda values: window(values["sliding_window"] - 1),
    "sliding_window_bidirectional_overlay": lambda values: window(values["sliding_window"]),
    "chunked_overlay": lambda values: blocks(values["chunk_size"]),
}
PACKED_MASK = "packed_sequence_mask_function"
REMAPPED_MASK = "remap_positions_for_packed_sequence"


def is_cross_attention(name: str, module: nn.Module) -> bool:
    """True for attention over the outputs of an encoder."""
    if getattr(module, "is_cross_attention", False) or "CrossAttention" in type(module).__name__:
        return True
    lower, last = name.lower(), name.rpartition(".")[2]
    return any(word in lower for word in CROSS_ATTENTION[:-1]) or last == CROSS_ATTENTION[-1]


def query_heads(module: nn.Module) -> int | None:
    """The number of query heads of an attention module, where it is known."""
    for name in HEAD_FIELDS:
        for owner in (module, getattr(module, "config", None)):
            found = getattr(owner, name, None)
            if isinstance(found, int):
                return found
    return None
