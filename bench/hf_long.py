"""A dense Hugging Face encoder at 16,384 tokens, trained with SDPA and on a sparse graph.

PYTHONPATH=src:bench python bench/hf_long.py
"""

import copy
import time

import torch
from measure import gpu_ms, write
from transformers import BertConfig, BertModel

from edgewise import hf
from edgewise.graphs import global_tokens, window

CUDA = torch.cuda.is_available()
N = 16_384 if CUDA else 512
GRAPH = window(512 if CUDA else 16) | global_tokens(1)
MODELS = {  # the sizes of MiniLM-L6, of BERT base and of BERT large
    "384, 6 layers": {"hidden_size": 384, "num_attention_heads": 12, "num_hidden_layers": 6},
    "768, 12 layers": {"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12},
    "1024, 24 layers": {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 24},
}


def built(sizes):
    """A model of 512 positions, as checkpoints have; made long by the recipe of Longformer."""
    quiet = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    hidden = 4 * sizes["hidden_size"]
    torch.manual_seed(0)
    start = 128 if not CUDA else 512
    config = BertConfig(
        vocab_size=1000, intermediate_size=hidden, max_position_embeddings=start, **sizes, **quiet
    )
    model = BertModel(config, add_pooling_layer=False)
    return hf.longer(model, N, GRAPH).to("cuda" if CUDA else "cpu", torch.bfloat16).train()


def step_of(model, tokens):
    def step():
        model(tokens).last_hidden_state.float().square().mean().backward()
        model.zero_grad(set_to_none=True)

    return step


def main():
    found = {"n": N, "graph": repr(GRAPH), "precision": "bfloat16", "batch": 1}
    for name, sizes in MODELS.items():
        if not CUDA and name != "384, 6 layers":
            continue
        tokens = torch.randint(1000, (1, N), device="cuda" if CUDA else "cpu")
        sparse = built(sizes)
        dense = hf.restore(copy.deepcopy(sparse))
        dense.set_attn_implementation("sdpa")
        times = {}
        for kind, model in (("sdpa", dense), ("edgewise", sparse)):
            step = step_of(model, tokens)
            step()
            if CUDA:
                torch.cuda.reset_peak_memory_stats()
                ms = gpu_ms(step, 0.6)
                times[kind] = {
                    "ms": ms,
                    "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2),
                }
            else:
                start = time.perf_counter()
                step()
                times[kind] = {"ms": round((time.perf_counter() - start) * 1e3, 1)}
        times["faster"] = round(times["sdpa"]["ms"] / times["edgewise"]["ms"], 2)
        found[name] = times
        print(name, times, flush=True)
        write("hf_long" if CUDA else "hf_long_cpu", found)


if __name__ == "__main__":
    main()
