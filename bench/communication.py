"""What the worst rank receives, as a share of gathering all keys and values: computed.

No rank runs: the plans of all of them are computed, for 1,048,576 tokens and 8 heads of 64 in
bfloat16. `plan_ms` is the CPU time in which one rank in the middle makes its own plan, by every way
there is, with the local graphs of the best; the others answer at once.

PYTHONPATH=src:bench python bench/communication.py
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
from measure import write

from edgewise.distributed import RowSizes, best_shards, communication
from edgewise.distributed.collectives import Ranks, Requested
from edgewise.distributed.rank_plan import build_plan
from edgewise.graphs import (
    bigbird,
    causal,
    documents,
    global_tokens,
    random_edges,
    strided,
    tree,
    window,
)

TOKENS, RANKS = 1 << 20, (8, 64, 512)
SIZES = RowSizes(heads=8, d=64)


def packed(mean=2048):
    """Documents of exponential lengths, which add up to all tokens."""
    lengths = np.maximum(np.random.default_rng(0).exponential(mean, 4 * TOKENS // mean), 1)
    ends = np.minimum(np.cumsum(lengths.astype(np.int64)), TOKENS)
    return documents(np.diff(np.append(0, np.append(ends[ends < TOKENS], TOKENS))))


def prefixes(shared=1 << 14, branch=1 << 11):
    """A text that all branches share, and branches of equal length."""
    parents = np.arange(-1, TOKENS - 1)
    parents[np.arange(shared, TOKENS, branch)] = shared - 1
    return tree(parents)


def graphs():
    return {
        "causal": causal(),
        "window ±256": window(256),
        "Longformer, 16 global tokens": window(256) | global_tokens(16),
        "BigBird, blocks of 64": bigbird(64, 3, seed=0),
        "causal strided 64, by residue": causal() & strided(64),
        "window ∪ strided 64, causal": causal() & (window(256) | strided(64)),
        "prefix tree": prefixes(),
        "documents": packed(),
        "documents, causal": causal() & packed(),
        "random, 8 keys": random_edges(8, seed=0),
    }


@dataclass(frozen=True, eq=False)
class Mirrored(Ranks):
    """One rank with tokens `mine`, of which the others, that are not there, read as many rows as it
    reads of theirs."""

    mine: np.ndarray

    def told(self, counts):
        return np.asarray(counts)

    def gather(self, row):
        return torch.stack([row] * self.count)

    def gather_lists(self, values):
        return [values] * self.count

    def request(self, rows, owner):
        order, count = np.argsort(owner, kind="stable"), np.bincount(owner, minlength=self.count)
        wanted = self.mine[np.arange(len(rows)) % len(self.mine)]
        return Requested(order, count.tolist(), count.tolist(), wanted)


def plan_seconds(graph, shards):
    """The CPU time of one rank in the middle for its whole plan."""
    rank = shards.ranks // 2
    mine = shards.tokens(rank).list()
    ranks = Mirrored(None, shards.ranks, rank, torch.device("cpu"), mine)
    start = time.process_time()
    build_plan(ranks, graph, shards, SIZES)
    return time.process_time() - start


def row(name, graph, ranks):
    by_residue = "by residue" in name
    shards = best_shards(graph, TOKENS, ranks) if by_residue else None
    found = communication(graph, tokens=TOKENS, ranks=ranks, sizes=SIZES, shards=shards)
    json = found.to_json()
    return {
        "graph": name,
        "ranks": ranks,
        "share_percent": round(100 * found.share, 3),
        "way": json["way"],
        "received_bytes": json["received"],
        "heads_percent": round(100 * found.by_heads / found.gathered, 3),
        "imbalance": round(found.imbalance, 3),
        "plan_ms": round(1e3 * plan_seconds(graph, found.home), 2),
    }


def main():
    rows = []
    for name, graph in graphs().items():
        for ranks in RANKS:
            rows.append(row(name, graph, ranks))
            print(rows[-1]["graph"], ranks, rows[-1]["share_percent"], rows[-1]["plan_ms"], "ms")
    write("communication", {"computed": True, "tokens": TOKENS, "rows": rows})


if __name__ == "__main__":
    main()
