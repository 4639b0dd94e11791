"""Tables on disk under a memory limit: two hops of a random graph to a file, and that file as a
relation of a model. Peak memory of the process, equal pairs.

PYTHONPATH=src:bench python bench/big_joins.py

Each runs in a process of its own, which has computed something before: its peak, less what it held
then, is what the join added, with DuckDB's code.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import write

NODES, EDGES = 200_000, 4_000_000
LIMITS = {"joined": "180MB", "grounded": "125MB"}


def peak():
    """MB that this process has held at most; `ru_maxrss` would begin with that of its parent."""
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return round(int(line.split()[1]) * 1024 / 1e6)


def joined(folder):
    from edgewise import R, V, data

    rule = R.two(V.X, V.Z) <= (R.e(V.X, V.Y), R.e(V.Y, V.Z))
    files = {"e": f"{folder}/e.parquet"}
    return data.join(rule, files, f"{folder}/two.parquet", memory=LIMITS["joined"])


def grounded(folder):
    """Nodes with a larger one to which and from which there are two hops."""
    from edgewise import Program, R, V, data

    both = (R._two(V.X, V.Y), R._two(V.Y, V.X), R.special.lt(V.X, V.Y))
    model = Program([R.out(V.X) <= both]).compile(R.out)
    keys = {"keys": ["X", "Z"], "memory": LIMITS["grounded"], "folder": folder}
    found = model.rows(model.ground(two=data.on_disk(f"{folder}/two.parquet", **keys)))
    np.save(f"{folder}/out.npy", found.index[0].numpy())
    return len(found)


def measured(part, folder):
    import torch

    import edgewise.module  # noqa: F401

    torch.ones(2) @ torch.ones(2)
    before, start = peak(), time.process_time()
    rows = {"joined": joined, "grounded": grounded}[part](folder)
    seconds = round(time.process_time() - start, 1)
    print(json.dumps({"rows": rows, "before_mb": before, "peak_mb": peak(), "cpu_s": seconds}))


def apart(part, folder, size):
    """A part in a new process; `size` are the bytes of what it joins or grounds."""
    child = [sys.executable, __file__, part, folder]
    said = json.loads(subprocess.run(child, capture_output=True, text=True, check=True).stdout)
    limit = int(LIMITS[part].removesuffix("MB"))
    added = said["peak_mb"] - said["before_mb"]
    said |= {"limit_mb": limit, "bytes": size, "times_limit": round(size / limit / 1e6, 1)}
    return said | {"added_mb": added, "added_by_limit": round(added / limit, 2)}


def main():
    from scipy.sparse import csr_array, triu

    with tempfile.TemporaryDirectory() as folder:
        codes = np.unique(np.random.default_rng(0).integers(NODES * NODES, size=EDGES))
        a, b = codes // NODES, codes % NODES
        pq.write_table(pa.table({"a": a, "b": b}), Path(folder) / "e.parquet")
        matrix = csr_array((np.ones(len(a), np.int32), (a, b)), shape=(NODES, NODES))
        square = matrix @ matrix
        groundings = int(square.sum())
        first = apart("joined", folder, groundings * 24)
        table = pq.read_table(f"{folder}/two.parquet")
        same = csr_array(
            (table["groundings"].to_numpy(), (table["X"].to_numpy(), table["Z"].to_numpy())),
            shape=(NODES, NODES),
        )
        first |= {"groundings": groundings, "same": bool((abs(same - square)).nnz == 0)}
        del same, table
        second = apart("grounded", folder, square.nnz * 16)
        both = triu(square.minimum(square.T), 1)
        expected = np.unique(both.tocoo().coords[0])
        second |= {"same": bool(np.array_equal(np.load(f"{folder}/out.npy"), expected))}
        result = {"edges": len(a), "joined": first, "grounded": second}
        print(result)
        write("big_joins", result)


if __name__ == "__main__":
    measured(*sys.argv[1:]) if len(sys.argv) > 1 else main()
