"""Grounded data in a file: seconds to ground, to save and to load, and equal outputs.

Triangles of a random graph, found through conditions, and two hops, all of which are groundings.

PYTHONPATH=src:bench python bench/saved_data.py
"""

import tempfile
import time
from pathlib import Path

import torch
from measure import write

from edgewise import F, Program, R, V

PROGRAMS = {
    "triangles": [
        (R.h(V.X) <= (R.x(V.Z)["w":8, 8], R._e(V.X, V.Y), R._e(V.Y, V.Z), R._e(V.X, V.Z)))
        | [F.sum_agg]
    ],
    "two hops": [(R.h(V.X) <= (R.x(V.Z)["w":8, 8], R.e(V.X, V.Y), R.e(V.Y, V.Z))) | [F.sum_agg]],
    "reachable": [
        R.r(V.X, V.Y) <= R._e(V.X, V.Y),
        R.r(V.X, V.Z) <= (R._r(V.X, V.Y), R._e(V.Y, V.Z)),
        (R.h(V.X) <= (R._r(V.X, V.Z), R.x(V.Z)["w":8, 8])) | [F.sum_agg],
    ],
}
SIZES = {
    "triangles": (50_000, 1_500_000),
    "two hops": (20_000, 200_000),
    "reachable": (1_000, 2_000),
}


def timed(call, *given, **named):
    start = time.process_time()
    found = call(*given, **named)
    return found, round(time.process_time() - start, 2)


def gradients(model, data):
    model.zero_grad()
    found = model.rows(data)
    found.data.sum().backward()
    return [found.index, found.data, *(p.grad.clone() for p in model.parameters())]


def main():
    torch.set_num_threads(1)
    result = {}
    for name, rules in PROGRAMS.items():
        nodes, edges = SIZES[name]
        torch.manual_seed(0)
        codes = torch.unique(torch.randint(nodes * nodes, (edges,)))
        e, x = torch.stack([codes // nodes, codes % nodes]), torch.randn(nodes, 8)
        model = Program(rules).compile(R.h, seed=0)
        model.ground(e=e[:, :100], x=x)  # what is compiled once
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "data"
            data, ground_s = timed(model.ground, e=e, x=x)
            _, save_s = timed(data.save, path)
            found, load_s = timed(model.load_data, path)
            same = all(map(torch.equal, gradients(model, found), gradients(model, data)))
            result[name] = {
                "edges": len(codes),
                "ground_s": ground_s,
                "save_s": save_s,
                "load_s": load_s,
                "file_mb": round(path.stat().st_size / 1e6, 1),
                "same_bits": same,
            }
        print(name, result[name], flush=True)
    write("saved_data", result)


if __name__ == "__main__":
    main()
