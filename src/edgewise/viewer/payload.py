"""What a page holds of a model: the strongest edges of each head, quantised, in less than 1 MB.

The bytes are one zlib stream: the length of a JSON header, the header, then the arrays that it
names. Its checksum is how a page notices that it is damaged.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.attention_graphs import AttentionGraph, WeightedEdges
from edgewise.attention_graphs.calls import AttentionCall
from edgewise.attention_graphs.errors import NoAttention
from edgewise.errors import caller
from edgewise.graphs.pattern import Pattern
from edgewise.viewer.errors import CannotShow, ViewTooLarge

EXACT = 150_000  # pairs up to which every edge is in the page, in 16 bits
LEAST = 1e-4
CANDIDATES = 1_200_000  # edges, the same number of each query, of which the strongest are chosen
BYTES = 600_000  # of the compressed panels together, which base64 makes a third longer
SQUARE = 1024  # tokens up to which maps are drawn from edges; beyond, from tiles
MOST_TOKENS = 1 << 16
TILES = 1 << 20  # of all heads
LEVEL = 6
LISTED = 4096  # tokens up to which a page lists all rows
WORD = re.compile(r"[A-Za-z_]\w*")
KNOWN = {  # what the page's patterns are called, and their arguments: a test compares
    *("full", "causal", "window", "dilated", "strided", "blocks", "prefix", "ring", "fixed"),
    *("global_tokens", "longformer", "random_edges", "bigbird", "extra_global_tokens"),
    *("radius", "step", "size", "length", "tokens", "width", "dilation", "keys", "seed", "block"),
    *("random", "global_first", "global_last", "pattern"),
    *("T", "shift", "rows", "power", "hops", "compose"),
}
LONGEST_LABEL = 64  # characters of a token, of which a page shows fewer
Arrays = dict[str, np.ndarray]
Panel = tuple[dict[str, Any], Arrays]


def pattern_panel(pattern: Pattern, n: int, title: str, most_bytes: int) -> Panel:
    """A pattern of n tokens: the page computes its pairs from the text of the rule; where it does
    not know the pattern, it holds the edges, whose weights are uniform."""
    named = set(WORD.findall(repr(pattern)))
    if not named <= KNOWN or (n > LISTED and named & {"T", "power", "compose"}):
        none = torch.zeros(1, n, 1)
        tokens = tuple(map(str, range(n)))
        call = AttentionCall("pattern", none, none, pattern, plan=f"pairs = {pattern!r:.500}")
        return model_panel(AttentionGraph(tokens, (call,)), title, most_bytes)
    head = {"kind": "pattern", "title": title, "n": n, "pattern": repr(pattern)}
    rule = f"weights(I, J) :- k(J).T, q(I), @({pattern!r})(I, J). [product, softmax_agg(J)]"
    plan = f"attention from I over J\n    pairs = {pattern!r}"
    return {**head, "layers": [{"name": "pattern", "heads": 1, "rule": rule, "plan": plan}]}, {}


def model_panel(graph: AttentionGraph, title: str, most_bytes: int) -> Panel:
    """The strongest edges of each head that fit into this many bytes, and its summary."""
    n = len(graph.tokens)
    if not graph.calls:
        raise NoAttention("the graph has no layers", caller(), "make it of a model")
    if not n:
        raise CannotShow("there are no tokens", caller(), "give a text, or at least one token")
    if n > MOST_TOKENS:
        raise ViewTooLarge(
            f"the text has {n:,} tokens, a page shows at most {MOST_TOKENS:,}",
            caller(),
            "show a part of it, or the pattern alone: `view(pattern, n=1_000_000)`",
        )
    layers = [
        {"name": call.name, "heads": call.heads, "rule": call.rule, "plan": call.plan,
         "pairs": call.pairs(), "pattern": _pattern_of(call)}
        for call in graph.calls
    ]  # fmt: skip
    tokens = [visible(token[:LONGEST_LABEL]) for token in graph.tokens]
    header: dict[str, Any] = {
        "kind": "model", "title": title, "n": n, "tokens": tokens, "layers": layers,
        "summary": [_rounded(asdict(one)) for one in graph.summary()],
    }  # fmt: skip
    arrays: Arrays = {}
    if n > SQUARE:
        header["tiles"], arrays["tiles"] = _tiles(graph)
    pairs = sum(call.pairs() for call in graph.calls)
    exact = pairs <= EXACT
    top = max(CANDIDATES // max(sum(graph.heads) * n, 1), 8)
    low = 0.0 if exact else max(LEAST, 1 / (top + 1))  # all edges above it are candidates
    edges = graph.edges(threshold=0.0) if exact else graph.edges(top=top, threshold=LEAST)
    return _fitting(header, arrays, edges, graph, low, most_bytes)


def visible(token: str) -> str:
    """A token as a label: one of spaces alone would not be seen.

    >>> visible("the"), visible("  "), visible("\\n")
    ('the', '␣␣', '⏎')
    """
    if token.strip():
        return token
    return "".join("⏎" if letter == "\n" else "␣" for letter in token)


def _pattern_of(call: AttentionCall) -> str:
    return repr(call.graph) if call.query_order is None else ""


def _fitting(
    header: dict[str, Any],
    arrays: Arrays,
    edges: WeightedEdges,
    graph: AttentionGraph,
    low: float,
    most_bytes: int,
) -> Panel:
    """With as many of the strongest edges as fit."""
    exact = low == 0.0
    count = min(len(edges), int(0.8 * most_bytes))
    for _ in range(8):
        chosen, least = _strongest(edges, count)
        complete = exact and count >= len(edges)
        scale = {"bits": 16 if exact else 8, "complete": complete, "least": max(least, low)}
        panel = {**header, **scale}, {**arrays, **_packed(chosen, graph, exact)}
        size = len(packed([panel]))
        if size <= most_bytes:
            return panel
        count = int(count * 0.93 * min(most_bytes / size, 0.99))
        exact = False
    raise ViewTooLarge(
        f"the labels and layers alone have {size:,} bytes, a page at most 1,000,000",
        caller(),
        "shorten the labels, or show a part of the text",
    )


def _strongest(edges: WeightedEdges, count: int) -> tuple[WeightedEdges, float]:
    """The strongest edge of each query first, then the strongest of all, and the weight above which
    none is missing."""
    if count >= len(edges):
        return edges, 0.0
    n = max(len(edges.tokens), 1)
    heads = int(edges.head.max()) + 1
    _, row = ((edges.layer * heads + edges.head) * n + edges.query).unique_consecutive(
        return_inverse=True
    )
    best = torch.zeros(int(row.max()) + 1).scatter_reduce(0, row, edges.weight, "amax")
    rank = edges.weight + 2.0 * (edges.weight >= best[row])
    found = rank.topk(max(count, 1))
    least = min(float(found.values[-1]), 1.0)
    at = found.indices.sort().values
    columns = (edges.layer, edges.head, edges.query, edges.key, edges.weight)
    layer, head, query, key, weight = (column[at] for column in columns)
    return WeightedEdges(layer, head, query, key, weight, edges.tokens), least


def _packed(edges: WeightedEdges, graph: AttentionGraph, exact: bool) -> Arrays:
    """Numbers of edges of all rows (heads in order × n), keys as steps, weights quantised.

    In 16 bits a weight is q / 65535, in 8 bits (q / 255)², which tells small ones apart.
    """
    n = len(graph.tokens)
    first = np.cumsum([0, *graph.heads])
    row = (torch.from_numpy(first)[edges.layer] + edges.head) * n + edges.query
    degree = torch.bincount(row, minlength=int(first[-1]) * n)
    key = edges.key.clone()
    same = torch.cat([torch.zeros(1, dtype=torch.bool), row[1:] == row[:-1]])[: len(row)]
    step = torch.where(same, key - torch.cat([key[:1], key[:-1]]), key)
    weight = edges.weight.double().clamp(0, 1)
    if exact:
        quantised = (weight * 65535).round().numpy().astype("<u2")
    else:
        quantised = (weight.sqrt() * 255).round().clamp_min(1).numpy().astype("u1")
    return {
        "degree": degree.numpy().astype("<u2"),
        "keys": step.numpy().astype("<u2"),
        "weights": quantised,
    }


def _tiles(graph: AttentionGraph) -> tuple[dict[str, Any], np.ndarray]:
    """The attention between spans of tokens: for each head (g, g) sums, as shares of the largest.

    (q / 255)² of the largest sum of the head, `most`.
    """
    n, heads = len(graph.tokens), sum(graph.heads)
    g = max(16, min(256, int((TILES / heads) ** 0.5) // 8 * 8))
    size = -(-n // g)
    g = -(-n // size)
    parts, most = [], []
    for call in graph.calls:
        sums = torch.zeros(call.heads, g * g, dtype=torch.float64)
        for first, part in call.parts():
            for block in part.blocks():
                queries = part.query_tokens(block)
                keys = block.keys.expand(len(queries), -1)
                at = (queries[:, None] // size) * g + keys // size
                sums[first : first + part.heads].index_add_(
                    1, at.flatten(), block.weights.double().flatten(1)
                )
        top = sums.amax(1).clamp_min(1e-12)
        parts.append((sums / top[:, None]).sqrt().mul(255).round().to(torch.uint8))
        most += top.tolist()
    table: Tensor = torch.cat(parts)
    return {"g": g, "size": size, "most": most}, table.flatten().numpy()


def _rounded(record: dict[str, Any]) -> dict[str, Any]:
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in record.items()}


def packed(panels: list[Panel]) -> bytes:
    """All panels as one compressed stream."""
    headers, data = [], bytearray()
    for header, arrays in panels:
        places = {}
        for name, array in arrays.items():
            data += bytes(-len(data) % 4)
            places[name] = [len(data), array.nbytes]
            data += _planes(array)
        headers.append({**header, "arrays": places})
    text = json.dumps({"panels": headers}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    return zlib.compress(len(text).to_bytes(4, "little") + text + bytes(data), LEVEL)


def _planes(array: np.ndarray) -> bytes:
    """Numbers of two bytes as low bytes, then high ones: they compress to less."""
    if array.itemsize == 1:
        return array.tobytes()
    return array.view("u1").reshape(-1, 2).T.tobytes()
