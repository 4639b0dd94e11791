"""METIS beside contiguous numbers: the rows that ranks receive for one hop, and the time to cut.

PYTHONPATH=src:bench python bench/partitions.py
"""

import time

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


def main():
    rows = []
    for name, (edges, nodes) in {
        "communities, shuffled": communities(),
        "grid, shuffled": grid(),
        "power law": power_law(),
    }.items():
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
    main()
