"""Options of other libraries' attention, and what to write here instead."""

from collections.abc import Collection, Sequence

from edgewise.errors import caller, suggest
from edgewise.kernels.attention.errors import BadOption

CAUSAL = "a mask is a graph: `attention(q, k, v, causal())`"
MASK = "a mask is a graph: `attention(q, k, v, graphs.from_dense(mask))`; numbers are `bias=mask`"
BLOCKS = "a mask is a graph: `attention(q, k, v, graphs.where(lambda i, j: ...))`"
WEIGHTS = "write `return_weights=True`: one weight for each pair of the graph"
DROPOUT = "write `dropout=0.1`; in evaluation `dropout=0.0`"
INSTEAD = {
    "is_causal": CAUSAL,
    "causal": CAUSAL,
    "attn_mask": MASK,
    "attention_mask": MASK,
    "mask": MASK,
    "attn_bias": "write `bias=`, added to the scores, or a graph for a mask",
    "block_mask": BLOCKS,
    "mask_mod": BLOCKS,
    "score_mod": "write `score=`, of S, I, J and H: `scores.softcap(50.0)`, `S - abs(I - J)`",
    "enable_gqa": "leave it out: `k` and `v` may have fewer heads than `q`",
    "dropout_p": DROPOUT,
    "p": DROPOUT,
    "training": DROPOUT,
    "softmax_scale": "write `scale=`",
    "logits_soft_cap": "write `score=scores.softcap(50.0)`",
    "softcap": "write `score=scores.softcap(50.0)`",
    "alibi_slopes": "write `bias=scores.alibi(heads)`",
    "window_size": "a window is a graph: `attention(q, k, v, window(256) & causal())`",
    "sliding_window": "a window is a graph: `attention(q, k, v, window(256) & causal())`",
    "key_padding_mask": "write `lengths=`, the number of keys of each sample",
    "cu_seqlens": "packed sequences are a graph: `attention(q, k, v, documents([3, 5]))`",
    "edge_index": "edges are a graph: `attention(q, k, v, graphs.from_edges(edge_index))`",
    "need_weights": WEIGHTS,
    "output_attentions": WEIGHTS,
    "return_attn_probs": WEIGHTS,
    "return_aux": "write `return_lse=True`",
    "backend": "write `kernel=`, the name of one of `IMPLEMENTATIONS`; without it one is chosen",
}


def unknown_option(
    positional: Sequence[object], named: Collection[str], known: Collection[str]
) -> BadOption:
    """The error about what `attention` was given beside q, k, v, a graph and its options."""
    if positional:
        count = 4 + len(positional)
        what, help = f"`attention` got {count} arguments by position", "write options by name"
        return BadOption(what, caller(), f"{help}: `attention(q, k, v, causal(), dropout=0.1)`")
    name = next(iter(named))
    help = INSTEAD.get(name) or suggest(name, sorted(known))
    return BadOption(f"`attention` has no option `{name}`", caller(), help)
