"""What the worst rank receives, as a share of gathering all keys and values: computed.

No rank runs: the plans of all of them are computed, for 1,048,576 tokens and 8 heads of 64 in
bfloat16, with the time that one rank takes for its own plan.

PYTHONPATH=src:bench python bench/communication.py
"""

import time

import numpy as np
from measure import write

from edgewise.distributed import RowSizes, best_shards, communication
from edgewise.distributed.ways import part_needs, ways_of
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


def plan_seconds(graph, shards):
    """The CPU time of one rank in the middle: what it needs, by every way there is."""
    start = time.process_time()
    for part in {part: None for way in ways_of(graph, shards, SIZES) for part in way.parts}:
        part_needs(part, shards, SIZES, shards.ranks // 2)
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
