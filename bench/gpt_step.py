"""One training step of the GPT of the recipes against plain PyTorch: SDPA and torch.compile.

PYTHONPATH=src:bench python bench/gpt_step.py
"""

import os
import time
from types import SimpleNamespace

import torch
from measure import gpu_ms, write
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from edgewise.training.models.language import Gpt

CUDA = torch.cuda.is_available()
SIZES = {"layers": 6, "heads": 6, "size": 384} if CUDA else {"layers": 2, "heads": 2, "size": 64}
WORDS, CONTEXT, BATCH = 65, 256 if CUDA else 64, 64 if CUDA else 4
DEVICE = "cuda" if CUDA else "cpu"


class Block(nn.Module):
    def __init__(self, size, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        p = self.dropout if self.training else 0.0
        attended = scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        x = x + self.drop(self.out(attended.transpose(1, 2).reshape(b, n, d)))
        return x + self.drop(self.mlp(self.norm2(x)))


class Plain(nn.Module):
    """The same model, as one writes it in PyTorch."""

    def __init__(self, layers, heads, size, dropout):
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, size), nn.Embedding(CONTEXT, size)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(size, heads, dropout) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, WORDS, bias=False)
        self.head.weight = self.word.weight

    def forward(self, token):
        place = self.place(torch.arange(token.shape[1], device=token.device))
        return self.head(self.norm(self.blocks(self.drop(self.word(token) + place))))


@torch.no_grad()
def copy_weights(ours, theirs):
    """Give our model the weights of the plain one."""
    named = {
        "word": theirs.word.weight,
        "position": theirs.place.weight,
        "out.gain": theirs.norm.weight,
        "out.bias": theirs.norm.bias,
    }
    for i, block in enumerate(theirs.blocks):
        at = f"layer.{i}."
        for part in ("weight", "bias"):
            named[f"{at}group0.qkv.{part}"] = getattr(block.qkv, part)
            named[f"{at}attended.{part}"] = getattr(block.out, part)
            named[f"{at}mlp.{part}"] = getattr(block.mlp[0], part)
            named[f"{at}out.{part}"] = getattr(block.mlp[2], part)
        for norm in ("norm1", "norm2"):
            named[f"{at}{norm}.gain"] = getattr(block, norm).weight
            named[f"{at}{norm}.bias"] = getattr(block, norm).bias
    for name, tensor in named.items():
        weight = ours.program.weight(name)
        weight.copy_(tensor.reshape(weight.shape))


def step_of(model, compiled):
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=CUDA)
    token = torch.randint(WORDS, (BATCH, CONTEXT + 1), device=DEVICE)
    run = torch.compile(model) if compiled else model

    def step():
        with torch.autocast(DEVICE, torch.bfloat16):
            logits = run(token[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1), token[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def main():
    torch.manual_seed(0)
    found = {"batch": BATCH, "context": CONTEXT, **SIZES, "precision": "bfloat16"}
    for dropout in (0.2, 0.0):
        theirs = Plain(**SIZES, dropout=dropout).to(DEVICE)
        config = Gpt(**SIZES, dropout=dropout, attention_dropout=dropout)
        ours = config.build(WORDS, SimpleNamespace(context=CONTEXT), 0).to(DEVICE)
        copy_weights(ours, theirs)
        token = torch.randint(WORDS, (BATCH, CONTEXT), device=DEVICE)
        same = ours.eval()(token), theirs.eval()(token)
        torch.testing.assert_close(*same, atol=5e-3, rtol=5e-3)
        ours.train(), theirs.train()
        for compiled in (True, False):
            times = {}
            for name, model in (("torch", theirs), ("ours", ours)):
                step = step_of(model, compiled)
                start = time.perf_counter()
                step()
                first = time.perf_counter() - start
                # alternate, so that neither has the quieter minute
                times[name] = {"step": step, "first_s": round(first, 2)}
            for _ in range(6):
                for timed in times.values():
                    timed.setdefault("ms", []).append(_ms(timed["step"]))
            key = f"dropout {dropout}, {'compiled' if compiled else 'eager'}"
            found[key] = {
                name: {"ms": min(t["ms"]), "all_ms": t["ms"], "first_s": t["first_s"]}
                for name, t in times.items()
            }
            found[key]["ratio"] = round(found[key]["ours"]["ms"] / found[key]["torch"]["ms"], 3)
            print(key, found[key], flush=True)
            write("gpt_step" if CUDA else "gpt_step_cpu", found)


def _ms(step):
    if CUDA:
        return gpu_ms(step, 0.5)
    start = time.perf_counter()
    step()
    return round((time.perf_counter() - start) * 1e3, 3)


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_FX_GRAPH_CACHE", "1")
    main()
