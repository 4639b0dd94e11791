"""METIS beside contiguous numbers: rows that ranks receive for one hop, work, the time to cut.

    PYTHONPATH=src:bench python bench/partitions.py [--data FOLDER]

FOLDER has planetoid/cora.npz, kg/{umls,kinship}.tar.gz and tu/PROTEINS.txt.gz.
"""

import argparse
import gzip
import tarfile
import time
from pathlib import Path

import numpy as np
import torch
from measure import write

from edgewise.distributed import partition_of, quality

RANKS = (2, 8, 64)


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    cuts(parser.parse_args().data)
