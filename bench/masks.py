"""Masks written as queries beside SDPA with the same mask as a matrix, forward and backward.

The masks are those of the tests; with --gpu beside FlexAttention, see masks_gpu.py.
PYTHONPATH=src:bench python bench/masks.py [tokens] [names...]
"""

import sys
import time
from pathlib import Path

import masks_gpu
import torch
from measure import write

from edgewise import R

sys.path.append(str(Path(__file__).parents[1]))  # the corpus is that of the tests
from tests.ground.mask_corpus import CORPUS, facts

D, REPEATS = 64, 3


def timed(step):
    """The least process time of some steps, in ms."""
    found = []
    for _ in range(1 + REPEATS):
        start = time.process_time()
        step()
        found.append(time.process_time() - start)
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


def peer(model, mask):
    """q, k and v by matrices, then SDPA with the mask."""
    weight = dict(model.named_parameters())
    projections = [weight[f"{name}.h"] for name in "qkv"]
    bias = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    bias[~mask.any(1)] = 0.0
    attend = torch.nn.functional.scaled_dot_product_attention

    def run(x):
        q, k, v = ((x @ w.T)[None, None] for w in projections)
        return attend(q, k, v, attn_mask=bias, scale=1.0)[0, 0]

    return run


def measured(case, n, tables):
    torch.manual_seed(0)
    model = case.program(D).compile(R.out, seed=0, fill=0.0)
    x = (torch.randn(n, D) / 4).requires_grad_()
    start = time.process_time()
    data = model.ground(**case.inputs(tables))
    model(data, h=x)
    ground = time.process_time() - start
    explained = model.explain(data, h=x, stage="kernels").to_json()["kernels"]
    step = explained["relations"][-1]["steps"][0]
    mask = dense_mask(model, data, x.detach())
    other, some = peer(model, mask), mask.any(1)
    torch.testing.assert_close(model(data, h=x)[some], other(x)[some], atol=2e-3, rtol=2e-3)
    return {
        "mask": case.name, "tokens": n, "pairs": step["pairs"], "allowed": int(mask.sum()),
        "kernel": step["kernel"], "first_call_cpu_s": round(ground, 3),
        "ms": timed(lambda: model(data, h=x).sum().backward()),
        "peer_ms": timed(lambda: other(x).sum().backward()),
    }  # fmt: skip


def main():
    if "--gpu" in sys.argv:
        masks_gpu.main()
        return
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    names, tables, found = sys.argv[2:], facts(n), []
    for case in CORPUS:
        if not names or case.name in names:
            found.append(measured(case, n, tables))
            print(found[-1], flush=True)
            write("masks", {"masks": found, "peer": "SDPA with a mask"})


if __name__ == "__main__":
    main()
