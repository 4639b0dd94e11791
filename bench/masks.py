"""Masks written as queries beside SDPA with the same mask as a matrix, forward and backward.

On a GPU beside FlexAttention with the same `mask_mod`. The masks are those of the tests.
PYTHONPATH=src:bench python bench/masks.py [tokens] [names...]
"""

import sys
import time
from pathlib import Path

import torch
from measure import write

from edgewise import R

sys.path.append(str(Path(__file__).parents[1]))  # the corpus is that of the tests
from tests.ground.mask_corpus import CORPUS, facts

D, REPEATS = 64, 3
NAMES = (
    "same speaker", "same speaker, earlier", "documents, causal", "shuffled documents, causal",
    "documents × roles", "same sentence or coreferent, and earlier", "ancestors",
    "earlier by time", "earlier of the same speaker", "groups that my owner is in",
    "padding, causal", "turns of the same speaker",
)  # fmt: skip


def timed(step, device):
    """The least time of some steps, in ms: process time on a CPU."""
    found = []
    clock = time.process_time if device == "cpu" else time.perf_counter
    for _ in range(1 + REPEATS):
        if device != "cpu":
            torch.cuda.synchronize()
        start = clock()
        step()
        if device != "cpu":
            torch.cuda.synchronize()
        found.append(clock() - start)
    return round(1e3 * min(found[1:]), 2)


def dense_mask(model, data, x):
    """The mask as a matrix, from the pairs that the model computes."""
    step = model._resolved(data, {"h": x})[0].executable.steps[-1].steps[-1]
    n = len(x)
    found = torch.zeros(n, n, dtype=torch.bool)
    i, j = step.pattern.edges(n, n) if step.pattern is not None else torch.ones(n, n).nonzero().T
    if step.order is not None:
        i, j = step.order.query.cpu()[i], step.order.key.cpu()[j]
    found[i, j] = True
    return found


def peer(model, mask, device):
    """q, k and v by matrices, then SDPA with the mask, or FlexAttention."""
    weight = dict(model.named_parameters())
    projections = [weight[f"{name}.h"] for name in "qkv"]
    if device == "cpu":
        bias = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
        bias[~mask.any(1)] = 0.0

        def attend(q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=bias, scale=1.0
            )
    else:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        held = mask.to(device)
        block = create_block_mask(
            lambda b, h, i, j: held[i, j], None, None, *mask.shape, device=device
        )
        compiled = torch.compile(flex_attention)

        def attend(q, k, v):
            return compiled(q, k, v, block_mask=block, scale=1.0)

    return lambda x: attend(*((x @ w.T)[None, None] for w in projections))[0, 0]


def measured(case, n, device):
    torch.manual_seed(0)
    tables = facts(n)
    model = case.program(D).compile(R.out, seed=0, fill=0.0).to(device)
    x = (torch.randn(n, D, device=device) / 4).requires_grad_()
    start = time.process_time()
    data = model.ground(**case.inputs(tables))
    model(data, h=x)
    ground = time.process_time() - start
    step = model.explain(data, h=x, stage="kernels").to_json()["kernels"]["relations"][-1]["steps"][
        0
    ]
    mask = dense_mask(model, data, x.detach())
    other = peer(model, mask, device)
    some = mask.any(1).to(device)
    torch.testing.assert_close(model(data, h=x)[some], other(x)[some], atol=2e-3, rtol=2e-3)
    return {
        "mask": case.name, "tokens": n, "pairs": step["pairs"], "allowed": int(mask.sum()),
        "kernel": step["kernel"], "ground_cpu_s": round(ground, 3),
        "ms": timed(lambda: model(data, h=x).sum().backward(), device),
        "peer_ms": timed(lambda: other(x).sum().backward(), device),
    }  # fmt: skip


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    names = sys.argv[2:] or NAMES
    found = []
    for case in CORPUS:
        if case.name in names:
            found.append(measured(case, n, device))
            print(found[-1], flush=True)
    write(
        "masks",
        {"masks": found, "peer": "SDPA with a mask" if device == "cpu" else "FlexAttention"},
    )


if __name__ == "__main__":
    main()
