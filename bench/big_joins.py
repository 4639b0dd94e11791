"""Two hops of a random graph joined in DuckDB under a memory limit: peak memory, equal pairs.

PYTHONPATH=src:bench python bench/big_joins.py
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import write

NODES, EDGES, LIMIT, PIECES = 200_000, 4_000_000, "180MB", 16


def peak():
    """MB that this process has held at most; `ru_maxrss` would begin with that of its parent."""
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return round(int(line.split()[1]) * 1024 / 1e6)


def joined(folder):
    import torch

    from edgewise import R, V, data

    torch.ones(2) @ torch.ones(2)
    rule = R.two(V.X, V.Z) <= (R.e(V.X, V.Y), R.e(V.Y, V.Z))
    before, start = peak(), time.process_time()
    files = {"e": f"{folder}/e.parquet"}
    count = data.join(rule, files, f"{folder}/two.parquet", memory=LIMIT, pieces=PIECES)
    print(count, before, peak(), round(time.process_time() - start, 1))


def main():
    from scipy.sparse import csr_array

    with tempfile.TemporaryDirectory() as folder:
        codes = np.unique(np.random.default_rng(0).integers(NODES * NODES, size=EDGES))
        a, b = codes // NODES, codes % NODES
        pq.write_table(pa.table({"a": a, "b": b}), Path(folder) / "e.parquet")
        child = [sys.executable, __file__, folder]
        said = subprocess.run(child, capture_output=True, text=True, check=True).stdout.split()
        pairs, before, most, seconds = int(said[0]), int(said[1]), int(said[2]), float(said[3])
        matrix = csr_array((np.ones(len(a), np.int32), (a, b)), shape=(NODES, NODES))
        square = matrix @ matrix
        table = pq.read_table(f"{folder}/two.parquet")
        same = csr_array(
            (table["groundings"].to_numpy(), (table["X"].to_numpy(), table["Z"].to_numpy())),
            shape=(NODES, NODES),
        )
        result = {"edges": len(a), "groundings": int(square.sum()), "pairs": pairs}
        result |= {"same": bool((abs(same - square)).nnz == 0), "limit": LIMIT, "pieces": PIECES}
        result |= {"bytes_of_groundings": int(square.sum()) * 24}
        result |= {"peak_mb_before": before, "peak_mb": most, "cpu_s": seconds}
        print(result)
        write("big_joins", result)


if __name__ == "__main__":
    joined(sys.argv[1]) if len(sys.argv) > 1 else main()
