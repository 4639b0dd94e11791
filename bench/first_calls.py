"""First calls: a compiled model at a length that it has not seen, grounding and lowering included.

PYTHONPATH=src:bench python3 bench/first_calls.py

Process time, the least and the median over lengths that are all new, after one call.
"""

import statistics
import time
from collections.abc import Callable

import torch
from measure import write

from edgewise import F, Program, R, V, numbers, rows, zoo


def bert() -> tuple[Callable[[int], object], range]:
    config = zoo.bert.Config(100, 64, 4, 128, 2, 128, dropout=0.1)
    model = zoo.bert.program(config).compile(R.out, seed=0).eval()

    def call(n: int) -> object:
        token, segment = torch.randint(100, (n,)), torch.zeros(n, dtype=torch.long)
        return model(token=numbers(token), segment=numbers(segment), mask=torch.ones(n, 1))

    return call, range(20, 50)


def recurrence(n: int, count: int) -> tuple[Callable[[int], object], range]:
    step = (R.out(V.Y)["h":8, 8], R.x(V.X)["i":8, 4], R.special.next(V.Y, V.X))
    model = Program([R.out(0) <= R.x(0)["i":8, 4], (R.out(V.X) <= step) | [F.tanh]]).compile(R.out)
    return lambda n: model(x=torch.randn(n, 4)), range(n, n + count)


def graph_network() -> tuple[Callable[[int], object], range]:
    """Two convolutions over a new random graph of about four edges a node, grounded and called."""
    rules = [
        (R.h(V.I) <= (R.edge(V.I, V.J), R.x(V.J)["first":16, 8])) | [F.product, F.relu],
        (R.out(V.I) <= (R.edge(V.I, V.J), R.h(V.J)["second":4, 16])) | [F.product],
    ]
    model = Program(rules).compile(R.out, seed=0, fill=0.0)

    def call(n: int) -> object:
        edge = torch.randint(0, n, (2, 4 * n)).unique(dim=1)
        data = model.ground(edge=rows(edge, torch.ones(edge.shape[1])))
        return model(data, x=torch.randn(n, 8))

    return call, range(100, 130)


CASES = {
    "small BERT": bert,
    "recurrence of 200 steps": lambda: recurrence(200, 11),
    "recurrence of 2000 steps": lambda: recurrence(2000, 4),
    "graph network of 100 nodes": graph_network,
}


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = []
    for name, case in CASES.items():
        call, lengths = case()
        call(lengths[0])
        times = []
        for n in lengths[1:]:
            start = time.process_time()
            call(n)
            times.append(1e3 * (time.process_time() - start))
        row = {"case": name, "least_ms": round(min(times), 1),
               "median_ms": round(statistics.median(times), 1)}  # fmt: skip
        print(row, flush=True)
        found.append(row)
    write("first_calls", found)


if __name__ == "__main__":
    main()
