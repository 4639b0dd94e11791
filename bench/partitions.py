"""METIS beside contiguous numbers: rows that ranks receive for one hop, work, the time to cut.

    PYTHONPATH=src:bench python bench/partitions.py [--data FOLDER]
    PYTHONPATH=src:bench python bench/partitions.py --ground

FOLDER has planetoid/cora.npz, kg/{umls,kinship}.tar.gz and tu/PROTEINS.txt.gz. `--ground` grounds
and runs three rules on 1, 2, 4 and 8 ranks: CPU seconds and memory of the rank with most.
"""

import argparse
import gzip
import multiprocessing
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from measure import write

from edgewise import F, Program, R, V
from edgewise.distributed import partition_of, quality

RANKS = (2, 8, 64)
NODES, DEGREE, SIZE = 200_000, 10, 32  # of the graph that is grounded


def communities(groups=256, size=256, degree=8):
    """Edges inside groups but for one in twenty; nodes have shuffled numbers."""
    torch.manual_seed(0)
    nodes = groups * size
    inside = torch.randint(size, (2, nodes * degree))
    pairs = inside + torch.randint(groups, (1, inside.shape[1])) * size
    far = torch.rand(inside.shape[1]) < 0.05
    pairs[1, far] = torch.randint(nodes, (int(far.sum()),))
    return torch.randperm(nodes)[pairs], nodes


def power_law(nodes=65_536, degree=8):
    """Targets are drawn by a power law, sources evenly."""
    torch.manual_seed(0)
    target = (nodes * torch.rand(nodes * degree) ** 3).long()
    return torch.stack([torch.randint(nodes, target.shape), target]), nodes


def grid(side=256):
    """Every node of a square has its four neighbours; nodes have shuffled numbers."""
    torch.manual_seed(0)
    at = torch.arange(side * side).view(side, side)
    pairs = [torch.stack([at[1:].flatten(), at[:-1].flatten()])]
    pairs.append(torch.stack([at[:, 1:].flatten(), at[:, :-1].flatten()]))
    edges = torch.cat([*pairs, *(pair.flip(0) for pair in pairs)], 1)
    return torch.randperm(side * side)[edges], side * side


def cora(folder):
    found = np.load(folder / "planetoid" / "cora.npz")
    return torch.from_numpy(found["edge_index"]), len(found["y"])


def triples(folder, name):
    """Entities of a knowledge graph, an edge for each training triple."""
    with tarfile.open(folder / "kg" / f"{name}.tar.gz") as archive:
        (path,) = (n for n in archive.getnames() if n.endswith("train.txt"))
        text = archive.extractfile(path).read().decode()
    lines = [line.split("\t") for line in text.splitlines()]
    numbers = {one: at for at, one in enumerate(sorted({x for a, _, b in lines for x in (a, b)}))}
    return torch.tensor([[numbers[a], numbers[b]] for a, _, b in lines]).T, len(numbers)


def proteins(folder):
    """All proteins side by side, as one graph."""
    with gzip.open(folder / "tu" / "PROTEINS.txt.gz", "rt") as file:
        lines = iter(file.read().splitlines())
    pairs, first = [], 0
    for _ in range(int(next(lines))):
        count = int(next(lines).split()[0])
        for node in range(count):
            neighbours = next(lines).split()
            pairs += [
                (first + int(n), first + node) for n in neighbours[2 : 2 + int(neighbours[1])]
            ]
        first += count
    return torch.tensor(pairs).T, first


def cuts(folder):
    graphs = {
        "communities, shuffled": communities(),
        "grid, shuffled": grid(),
        "power law": power_law(),
    }
    if folder is not None:
        graphs |= {"cora": cora(folder), "proteins": proteins(folder)}
        graphs |= {name: triples(folder, name) for name in ("umls", "kinship")}
    rows = []
    for name, (edges, nodes) in graphs.items():
        for ranks in RANKS:
            for kind in ("contiguous", "metis"):
                start = time.process_time()
                partition = partition_of(kind, nodes, ranks, edges)
                used = time.process_time() - start
                found = quality(partition, edges, ranks)
                share = found.halo / (nodes * (ranks - 1) / ranks)
                row = {"graph": name, "nodes": nodes, "edges": edges.shape[1], "ranks": ranks}
                row |= {"partition": kind, "halo_percent": round(100 * share, 2)}
                row |= {"cut": round(found.cut, 4), "imbalance": round(found.imbalance, 3)}
                rows.append(row | {"cpu_s": round(used, 3)})
                print(rows[-1])
    write("partitions", rows)


def peak(again=False):
    """MB of memory that this process has held at most, or holds, from where it counts `again`."""
    if again:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6


def model():
    """Two layers along edges, and one over pairs two hops apart."""
    return Program(
        [
            (R.h(V.I) <= (R.x(V.J)["w":SIZE, SIZE], R.edge(V.J, V.I))) | [F.relu, F.avg_agg],
            (R.g(V.I) <= (R.h(V.J)["u":SIZE, SIZE], R.edge(V.J, V.I))) | [F.relu, F.avg_agg],
            (R.out(V.I) <= (R.g(V.K), R._edge(V.K, V.J), R._edge(V.J, V.I))) | [F.avg_agg],
        ]
    ).compile(R.out, seed=0)


def grounded(rank, ranks, folder, results):
    """Ground and run the rules on one of the ranks: CPU seconds, MB, rows received."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=ranks)
    mesh, one = init_device_mesh("cpu", (ranks,)), model()
    made = torch.load(f"{folder}/graph.pt", weights_only=True)
    edge, partition = made["edge"], made[f"partition{ranks}"]
    small = one.ground(edge=edge[:, :1000], mesh=mesh, partition=partition)
    one.rows(
        small, x=torch.ones(len(small.nodes), SIZE)
    ).data.sum().backward()  # what is loaded once
    dist.barrier()
    before, start = peak(again=True), time.process_time()
    if ranks == 1:
        data, nodes = one.ground(edge=edge), torch.arange(NODES)
    else:
        data = one.ground(edge=edge, mesh=mesh, partition=partition)
        nodes = data.nodes
    x = torch.ones(len(nodes), SIZE)
    one.rows(data, x=x)
    ground = time.process_time() - start
    held = peak() - before
    start = time.process_time()
    one.rows(data, x=x).data.sum().backward()
    step = time.process_time() - start
    received = 0 if ranks == 1 else sum(data.received.values())
    results.put((ground, held, step, peak() - before, received))
    dist.barrier()
    dist.destroy_process_group()


def groundings():
    torch.manual_seed(0)
    context, rows = multiprocessing.get_context("spawn"), []
    edge, _ = communities(groups=NODES // 200, size=200, degree=DEGREE)
    edge = torch.unique(edge, dim=1)
    for ranks in (1, 2, 4, 8):
        with tempfile.TemporaryDirectory() as folder:
            partition = partition_of("metis", NODES, ranks, edge)
            torch.save({"edge": edge, f"partition{ranks}": partition}, f"{folder}/graph.pt")
            results = context.Queue()
            started = [
                context.Process(target=grounded, args=(rank, ranks, folder, results))
                for rank in range(ranks)
            ]
            for process in started:
                process.start()
            found = [results.get() for _ in started]
            for process in started:
                process.join()
        most = [max(column) for column in zip(*found, strict=True)]
        row = {"nodes": NODES, "edges": edge.shape[1], "ranks": ranks}
        row |= {"ground_and_first_call_cpu_s": round(most[0], 2), "ground_mb": round(most[1])}
        row |= {"step_cpu_s": round(most[2], 3), "peak_mb": round(most[3]), "received": most[4]}
        rows.append(row)
        print(row)
    write("partitioned_grounding", rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--ground", action="store_true")
    asked = parser.parse_args()
    groundings() if asked.ground else cuts(asked.data)
