"""Masks written as queries beside SDPA with the same mask as a matrix, forward and backward.

The masks are those of the tests; with --gpu beside FlexAttention, see masks_gpu.py.
PYTHONPATH=src:bench python bench/masks.py [tokens] [names...]

What SDPA takes does not depend on the mask: beyond MOST_PEER tokens it is timed for the first one
alone, and beyond that for none, since the matrix would take 17 GB.
"""

import sys
import time
from pathlib import Path

import masks_gpu
import torch
from measure import write, written

from edgewise import EdgewiseError, R

sys.path.append(str(Path(__file__).parents[1]))  # the corpus is that of the tests
from tests.ground.mask_corpus import CORPUS, TEXTS, facts

D, REPEATS = 64, 3
MOST_PEER, MOST_MATRIX = 4096, 16_384


def timed(step):
    """The least process time of some steps, in ms; of one that takes seconds."""
    found = []
    for _ in range(1 + REPEATS):
        start = time.process_time()
        step()
        found.append(time.process_time() - start)
        if found[-1] > 1:
            break
    return round(1e3 * min(found[1:] or found), 2)


def dense_mask(model, data, x):
    """The mask as a matrix, from the pairs that the model computes."""
    step = model._resolved(data, {"h": x})[0].executable.steps[-1].steps[-1]
    n = len(x)
    if step.pattern is None:
        return torch.ones(n, n, dtype=torch.bool)
    found = torch.zeros(n, n, dtype=torch.bool)
    i, j = step.pattern.edges(n, n)
    if step.order is not None:
        i, j = step.order.query.cpu()[i], step.order.key.cpu()[j]
    found[i, j] = True
    return found


def peer(model, mask):
    """q, k and v by matrices, then SDPA with the mask."""
    weight = dict(model.named_parameters())
    projections = [weight[f"{name}.h"] for name in "qkv"]
    bias = torch.zeros(mask.shape).masked_fill_(~mask, -torch.inf)
    bias[~mask.any(1)] = 0.0
    attend = torch.nn.functional.scaled_dot_product_attention

    def run(x):
        q, k, v = ((x @ w.T)[None, None] for w in projections)
        return attend(q, k, v, attn_mask=bias, scale=1.0)[0, 0]

    return run


def measured(case, n, tables, with_peer):
    torch.manual_seed(0)
    model = case.program(D).compile(R.out, seed=0, fill=0.0)
    x = (torch.randn(n, D) / 4).requires_grad_()
    start = time.process_time()
    data = model.ground(**case.inputs(tables))
    model(data, h=x)
    ground = time.process_time() - start
    explained = model.explain(data, h=x, stage="kernels").to_json()["kernels"]
    step = explained["relations"][-1]["steps"][0]
    row = {"mask": case.name, "pairs": step["pairs"], "kernel": step["kernel"],
           "first_call_cpu_s": round(ground, 3)}  # fmt: skip
    if with_peer:
        mask = dense_mask(model, data, x.detach())
        other, some = peer(model, mask), mask.any(1)
        row["allowed"] = int(mask.sum())
        torch.testing.assert_close(model(data, h=x)[some], other(x)[some], atol=2e-3, rtol=2e-3)
        row["peer_ms"] = timed(lambda: other(x).sum().backward())
    row["ms"] = timed(lambda: model(data, h=x).sum().backward())
    return row


def main():
    if "--gpu" in sys.argv:
        masks_gpu.main()
        return
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    tables, names, where = facts(n, rates=TEXTS), sys.argv[2:], f"{n} tokens"
    known = {row["mask"]: row for row in written("masks").get(where, [])} if names else {}
    for case in CORPUS:
        if names and case.name not in names:
            continue
        try:
            with_peer = n <= (MOST_PEER if known else MOST_MATRIX)
            known[case.name] = measured(case, n, tables, with_peer)
        except EdgewiseError as error:  # too large at this length
            known[case.name] = {"mask": case.name, "error": error.code}
        print(known[case.name], flush=True)
        rows = {where: [*known.values()], "peer": "SDPA with a mask"}
        write("masks", {**written("masks"), **rows})


if __name__ == "__main__":
    main()
