"""The time of an edit of a two-layer network over a graph, beside computing everything.

`python bench/edits.py [edges]`; alternating runs, CPU time, float64.
"""

import statistics
import sys
import time

import torch
from measure import write

from edgewise import F, Program, R, V, rows

RULES = [
    (R.h(V.X) <= (R.edge(V.X, V.Y), R.x(V.Y)[16, 16])) | [F.product, F.tanh],
    (R.out(V.X) <= (R.edge(V.X, V.Y), R.h(V.Y)[8, 16])) | [F.product],
]


def main() -> None:
    edges = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    nodes = edges // 10
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, nodes * nodes, (edges,), generator=generator).unique()
    pairs = torch.stack([codes // nodes, codes % nodes])
    values = torch.rand(pairs.shape[1], generator=generator, dtype=torch.float64)
    x = torch.randn(nodes, 16, generator=generator, dtype=torch.float64)
    model = Program(RULES).compile(R.out, seed=0, dtype=torch.float64)
    updating = model.updating(x=x, edge=rows(pairs, values))
    took: dict[str, list[float]] = {"edit": [], "everything": []}
    left = torch.ones(pairs.shape[1], dtype=torch.bool)
    for at in range(5):
        left[at * 1000] = False
        first, second = pairs[:, at * 1000].tolist()
        start = time.process_time()
        found = updating.remove([R.edge(first, second)])
        took["edit"].append(time.process_time() - start)
        start = time.process_time()
        with torch.no_grad():
            wanted = model.rows(model.ground(x=x, edge=rows(pairs[:, left], values[left])))
        took["everything"].append(time.process_time() - start)
        difference = float((found.data - wanted.data).abs().max())
    write("edits", {
        "edges": pairs.shape[1], "rows": updating.rows, "recomputed": updating.computed,
        "difference": difference,
        **{f"{name}_cpu_s": round(statistics.median(some), 3) for name, some in took.items()},
    })  # fmt: skip


if __name__ == "__main__":
    main()
