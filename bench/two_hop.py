"""A sum over two hops on 1M edges, and how the cost of grounding grows with its output.

PYTHONPATH=src:bench python bench/two_hop.py
"""

import os
import resource
import sys
import time

import torch
from measure import write

from edgewise import F, Program, R, V

TWO_HOPS = Program(
    [(R.h(V.X) <= (R.e(V.X, V.Y), R.f(V.Y, V.Z), R.a(V.Z))) | [F.product, F.sum_agg]]
)
PAIRS = Program([(R.h(V.X, V.Z) <= (R._e(V.X, V.Y), R.f(V.Y, V.Z))) | [F.sum_agg]])


def peak():
    """MiB of memory that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def drawn(n, degree):
    """Distinct edges (2, e), about `degree` from every node."""
    codes = torch.unique(torch.randint(n * n, (n * degree,)))
    return torch.stack([codes // n, codes % n])


def sums(n=100_000, degree=10):
    """Ground and one step of a sum over all paths of two edges, without listing the paths."""
    torch.manual_seed(0)
    edges, a = drawn(n, degree), torch.randn(n, requires_grad=True)
    paths = int(torch.bincount(edges[0], minlength=n)[edges[1]].sum())
    model = TWO_HOPS.compile(R.h)
    small = drawn(100, 3)
    model(model.ground(e=small, f=small), a=torch.randn(100))  # imports and first use
    before, start = peak(), time.process_time()
    data = model.ground(e=edges, f=edges)
    model(data, a=a)
    ground = time.process_time() - start
    start = time.process_time()
    out = model(data, a=a)
    out.data.sum().backward()
    step, extra = time.process_time() - start, peak() - before
    expected = torch.zeros(n).index_add(0, edges[0], a.detach()[edges[1]])
    expected = torch.zeros(n).index_add(0, edges[0], expected[edges[1]])
    torch.testing.assert_close(out.data, expected[out.index[0]], atol=1e-3, rtol=1e-3)
    return {
        "edges": edges.shape[1],
        "paths": paths,
        "ground_cpu_s": round(ground, 3),
        "step_cpu_s": round(step, 3),
        "extra_mib": round(extra, 1),
        "target_mib": 300,
    }


def growth():
    """Seconds to ground a join that lists its pairs, and nanoseconds for each."""
    rows = []
    model = PAIRS.compile(R.h)
    for n in (100, 1_000, 10_000, 100_000):
        torch.manual_seed(0)
        edges = drawn(n, 5)
        times = []
        for _ in range(3):
            start = time.process_time()
            data = model.ground(e=edges, f=edges)
            times.append(time.process_time() - start)
        count = len(model.rows(data))
        rows.append({"n": n, "rows": count, "ground_cpu_s": round(min(times), 4)})
        rows[-1]["ns_per_row"] = round(min(times) / count * 1e9)
        print(rows[-1], flush=True)
    return rows


def main():
    torch.set_num_threads(1)
    found = {"two_hop_sum": sums()}  # first: the peak is that of the process
    print(found, flush=True)
    found["grounding"] = growth()
    found["load"] = os.getloadavg()[0]
    write("two_hop", found)
    assert found["two_hop_sum"]["extra_mib"] < 300
    return found


if __name__ == "__main__":
    sys.exit(not main())
