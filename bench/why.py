"""The time of `why` for one atom of a two-layer network over many edges.

`python bench/why.py [edges]`; the second layer has a hidden condition and a negation.
"""

import sys
import time

import torch
from measure import write

from edgewise import F, Program, R, V, rows

RULES = [
    (R.h(V.X) <= (R.edge(V.X, V.Y), R.x(V.Y)[16, 16])) | [F.product, F.tanh],
    R.out(V.X) <= (R.h(V.Y)[8, 16], R._edge(V.X, V.Y), ~R.off(V.Y)),
]


def main() -> None:
    edges = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    nodes = edges // 10
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, nodes * nodes, (edges,), generator=generator).unique()
    pairs = torch.stack([codes // nodes, codes % nodes])
    x = torch.randn(nodes, 16, generator=generator)
    model = Program(RULES).compile(R.out, seed=0, limit=1 << 30)
    start = time.perf_counter()
    values = torch.rand(pairs.shape[1], generator=generator)
    off = torch.arange(0, nodes, 3).unsqueeze(0)
    data = model.ground(x=x, edge=rows(pairs, values), off=off)
    grounded = time.perf_counter() - start
    times = []
    for node in (7, 8, 9):
        start = time.perf_counter()
        why = model.why(R.out(node), data)
        repr(why)
        times.append(time.perf_counter() - start)
    groundings = 2 * pairs.shape[1]
    write("why", {
        "edges": pairs.shape[1], "groundings": groundings, "grounding_s": round(grounded, 2),
        "first_s": round(times[0], 3), "next_s": round(min(times[1:]), 3),
        "shown": len(why.derivations[0].groundings),
    })  # fmt: skip


if __name__ == "__main__":
    main()
