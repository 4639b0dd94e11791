"""First calls: a compiled model at a length that it has not seen, grounding and lowering included.

PYTHONPATH=src:bench python3 bench/first_calls.py

Process time, the least and the median over lengths that are all new, after one call; then that of
importing the package, compiling a program and calling it in a new process that has imported torch.
"""

import os
import statistics
import subprocess
import sys
import tempfile
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


FIRST = {
    "XOR network": """(
        [(R.xor[1, 8] <= R.xy[8, 2]) | [F.tanh], R.xor / 0 | [F.tanh]], R.xor, {"xy": (2,)})""",
    "attention": """(
        [(R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I)["q":2, 2]))
         | [F.product, F.softmax_agg(agg_terms=[V.J])],
         (R.y(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product]], R.y, {"x": (5, 2)})""",
    "recurrence of 5 steps": """(
        [R.h(0) <= R.x(0)["i":4, 4],
         (R.h(V.T) <= (R.h(V.S)["w":4, 4], R.x(V.T)["i"], R.special.next(V.S, V.T))) | [F.tanh]],
        R.h, {"x": (5, 4)})""",
}
PROCESS = """
import time, torch
start = time.process_time()
from edgewise import F, Program, R, V
rules, output, inputs = %s
model = Program(rules).compile(output)
model(**{name: torch.randn(shape) for name, shape in inputs.items()}).sum().backward()
print(time.process_time() - start)
"""


def first_in_a_process(code: str) -> dict[str, float]:
    """Bytecode is cached, as that of an installed package is."""
    with tempfile.TemporaryDirectory() as folder:
        own = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        own |= {"PYTHONPYCACHEPREFIX": folder}
        command = [sys.executable, "-c", PROCESS % code]
        times = [
            1e3 * float(subprocess.run(command, env=own, capture_output=True, check=True).stdout)
            for _ in range(6)
        ][1:]
    return {"least_ms": round(min(times), 1), "median_ms": round(statistics.median(times), 1)}


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
    for name, code in FIRST.items():
        row = {"case": f"{name}, first in a process", **first_in_a_process(code)}
        print(row, flush=True)
        found.append(row)
    write("first_calls", found)


if __name__ == "__main__":
    main()
