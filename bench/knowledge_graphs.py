"""A knowledge graph of 40,943 entities, the size of WN18RR: 1-vs-all scores and NBFNet.

PYTHONPATH=src:bench python bench/knowledge_graphs.py

Beside plain torch on the same weights and numbers: a step of training, forward and backward, on one
thread, alternating runs, CPU time. Peak memory is that of a process of its own for each, beyond
what it takes before its first step; with twice the edges it shows what grows with edges · d.
"""

import argparse
import ctypes
import gc
import json
import pathlib
import statistics
import subprocess
import sys
import time

import torch
from measure import write
from torch.nn.functional import cross_entropy, layer_norm

from edgewise import R, numbers, rows, zoo

ENTITIES, RELATIONS, EDGES = 40_943, 22, 174_000
SCORED, SIZE = 128, 200  # queries of a batch, and numbers of a vector, of ComplEx
QUERIES, WIDTH, LAYERS = 4, 32, 4  # of NBFNet


def graph(edges):
    draw = torch.Generator().manual_seed(0)
    ends = [torch.randint(n, (edges,), generator=draw) for n in (ENTITIES, RELATIONS, ENTITIES)]
    return torch.stack(ends).unique(dim=1)


def queries(count):
    draw = torch.Generator().manual_seed(1)
    return [torch.randint(n, (count,), generator=draw) for n in (ENTITIES, RELATIONS, ENTITIES)]


def scores():
    """Steps of ComplEx: ours, and plain torch with the same weights."""
    head, relation, tail = queries(SCORED)
    model = zoo.complex.program(zoo.complex.Config(ENTITIES, RELATIONS, SIZE)).compile(
        R.score, seed=0
    )
    weights = dict(model.named_parameters())
    read = {"head": numbers(head), "relation": numbers(relation)}

    def plain():
        h, d = weights["entity"][head], SIZE // 2
        a, b = weights["relation.real"][relation], weights["relation.imaginary"][relation]
        real, imaginary = h[:, :d] * a - h[:, d:] * b, h[:, :d] * b + h[:, d:] * a
        return torch.cat([real, imaginary], 1) @ weights["entity"].T

    steps = {"ours": lambda: model(**read), "plain": plain}
    return model, steps, tail


def paths(edges):
    """Steps of NBFNet: ours, and gather and scatter in plain torch with the same weights."""
    head, relation, tail = queries(QUERIES)
    edge = graph(edges)
    config = zoo.nbfnet.Config(RELATIONS, WIDTH, LAYERS)
    model = zoo.nbfnet.program(config).compile(R.score, seed=0)
    weights = dict(model.named_parameters())
    start = torch.zeros(QUERIES, ENTITIES, 1)
    start[torch.arange(QUERIES), head] = 1
    data = model.ground(edge=rows(edge), hide=rows(edge[:, :0]))

    def plain():
        w, (j, k, i) = weights, edge
        q = w["query"][relation]
        x = boundary = start * q[:, None]
        for t in range(1, LAYERS + 1):
            each = torch.einsum("kde,be->bkd", w[f"relation.{t}.weight"], q)
            each = each + w[f"relation.{t}.bias"]
            message = torch.zeros_like(x).index_add(1, i, x[:, j] * each[:, k]) + boundary
            y = torch.cat([x, message], 2) @ w[f"layer.{t}.weight"].T + w[f"layer.{t}.bias"]
            y = layer_norm(y, (WIDTH,), w[f"norm.{t}.gain"], w[f"norm.{t}.bias"])
            x = y.relu() + x
        h = x @ w["hidden.weight"].T + w["hidden.bias"] + (q @ w["hidden.query"].T)[:, None]
        return (h.relu() @ w["score.weight"].T + w["score.bias"])[..., 0]

    ours = {"start": start, "relation": numbers(relation)}
    return model, {"ours": lambda: model(data, **ours), "plain": plain}, tail


def step(model, run, tail):
    """CPU seconds of a forward and backward pass."""
    model.zero_grad()
    began = time.process_time()
    cross_entropy(run(), tail).backward()
    return time.process_time() - began


def timed(model, steps, tail, count=7):
    apart = (steps["ours"]() - steps["plain"]()).abs().max().item()
    found = {name: [] for name in steps}
    for _ in range(count + 1):  # the first is not counted
        for name, run in steps.items():
            found[name].append(step(model, run, tail))
    least = {name: statistics.median(each[1:]) for name, each in found.items()}
    return {
        **{f"{name}_s": round(each, 4) for name, each in least.items()},
        "ratio": round(least["ours"] / least["plain"], 3),
        "largest_difference": apart,
    }


def kilobytes(field):
    """What the process takes now (`VmRSS`), or took at most (`VmHWM`)."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def peak(name, edges):
    """Bytes of the second step beyond what was taken before it, in this process."""
    model, steps, tail = paths(edges)
    step(model, steps[name], tail)
    model.zero_grad()
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the most begins anew
    before = kilobytes("VmRSS")
    step(model, steps[name], tail)
    return 1024 * (kilobytes("VmHWM") - before)


def memory(name, edges):
    command = [sys.executable, __file__, "--peak", name, "--edges", str(edges)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peak", help="used by the script itself")
    parser.add_argument("--edges", type=int, default=EDGES)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.peak:
        print(peak(chosen.peak, chosen.edges))
        return
    found = {
        "1-vs-all": {"entities": ENTITIES, "queries": SCORED, "size": SIZE, **timed(*scores())},
        "nbfnet": {"queries": QUERIES, "size": WIDTH, "layers": LAYERS, **timed(*paths(EDGES))},
    }
    for name in ("ours", "plain"):
        peaks = [memory(name, edges) for edges in (EDGES, 2 * EDGES)]
        found["nbfnet"][f"{name}_peak_bytes"] = peaks
    found["nbfnet"]["edges"] = [EDGES, 2 * EDGES]
    print(json.dumps(found, indent=1))
    write("knowledge_graphs", found)


if __name__ == "__main__":
    main()
