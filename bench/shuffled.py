"""Training on reshuffled batches of graphs beside PyG's `DataLoader`, and on a new graph per call.

PYTHONPATH=src:bench python bench/shuffled.py [data set ...]

PROTEINS and MUTAG are read from the folder in EDGEWISE_TU (one text file each, compressed by gzip);
"molecules" are drawn: 4,110 trees with some rings. Equal networks, batches of 128, one thread,
process time, runs in turn, the least of three. "gathered" batches come from `model.batches(data)`,
"plain" ones are lists of samples, `model(x=ragged(...), edge=ragged(...))`.
"""

import gzip
import os
import pathlib
import statistics
import sys
import time
import warnings

import torch
from measure import skip, write, written
from torch.nn.functional import cross_entropy, one_hot

from edgewise import F, Program, R, V, W, ragged
from edgewise.zoo import gat, gcn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG's own imports
    from torch_geometric import nn as pyg
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader

HERE = pathlib.Path(__file__).resolve().parents[1]
FOLDER = pathlib.Path(os.environ.get("EDGEWISE_TU", HERE.parent / "shared" / "data" / "tu"))
D, CLASSES, BATCH, REPEATS = 64, 2, 128, 3


def read(name):
    """Features, edges (target, source) and class of each graph."""
    path = FOLDER / f"{name}.txt.gz"
    if not path.exists():
        skip(f"no {path.name} in the folder EDGEWISE_TU")
    graphs = []
    with gzip.open(path, "rt") as lines:
        for _ in range(int(next(lines))):
            n, label = map(int, next(lines).split()[:2])
            nodes = [list(map(int, next(lines).split())) for _ in range(n)]
            edges = [(i, j) for i, node in enumerate(nodes) for j in node[2 : 2 + node[1]]]
            graphs.append(([node[0] for node in nodes], edges, label % CLASSES))
    kinds = sorted({kind for kinds, _, _ in graphs for kind in kinds})
    number = {kind: at for at, kind in enumerate(kinds)}
    return [
        (
            one_hot(torch.tensor([number[k] for k in own]), len(kinds)).float(),
            torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T.contiguous(),
            label,
        )
        for own, edges, label in graphs
    ]


def molecules(count=4110):
    """Trees of about 30 atoms with two rings, and random features."""
    torch.manual_seed(0)
    found = []
    for n in torch.randint(15, 46, (count,)).tolist():
        above = (torch.rand(n - 1) * torch.arange(1, n)).long()
        ends = torch.cat([torch.stack([torch.arange(1, n), above]), torch.randint(n, (2, 2))], 1)
        ends = ends[:, ends[0] != ends[1]]
        edges = torch.unique(torch.cat([ends, ends.flip(0)], 1), dim=1)
        found.append((torch.randn(n, 16), edges, n % CLASSES))
    return found


def with_gin(size):
    rules, name, width = [], R.x, size
    for k in range(3):
        total, inner, out = (R[f"{part}{k}"] for part in ("total", "inner", "out"))
        rules += [
            total(V.I) <= name(V.I),
            total(V.I) <= (name(V.J), R._edge(V.I, V.J)),
            (inner(V.I) <= (total(V.I)[D, width], W[f"b{k}"][D,])) | [F.relu],
            (out(V.I) <= (inner(V.I)[D, D], W[f"c{k}"][D,])) | [F.relu],
        ]
        name, width = out, D
    linear = torch.nn.Linear
    convs = [
        pyg.GINConv(torch.nn.Sequential(linear(n, D), torch.nn.ReLU(), linear(D, D)))
        for n in (size, D, D)
    ]
    return Program([*rules, R.pooled <= name(V.I)[CLASSES, D]]), convs


def pooled(program):
    rules = [*program.statements, R.active(V.I) <= R.out(V.I), R.active / 1 | [F.relu]]
    return Program([*rules, R.pooled <= R.active(V.I)[CLASSES, D]], domains=dict(program.domains))


def with_gcn(size):
    return pooled(gcn.program(gcn.Config(size, D))), [pyg.GCNConv(size, D)]


def with_gat(size):
    heads = 4
    config = gat.Config(size, D // heads, heads)
    return pooled(gat.program(config)), [pyg.GATConv(size, D // heads, heads=heads)]


MODELS = {"gin": with_gin, "gcn": with_gcn, "gat": with_gat}


class Peer(torch.nn.Module):
    def __init__(self, convs):
        super().__init__()
        self.convs = torch.nn.ModuleList(convs)
        self.last = torch.nn.Linear(D, CLASSES, bias=False)

    def forward(self, batch):
        x = batch.x
        for conv in self.convs:
            x = conv(x, batch.edge_index).relu()
        return pyg.global_add_pool(self.last(x), batch.batch, batch.num_graphs)


def epochs(graphs, name):
    """Seconds of an epoch, or of its batches alone, for each way."""
    program, convs = MODELS[name](graphs[0][0].shape[1])
    model, peer = program.compile(R.pooled, seed=0, dense=True), Peer(convs)
    labels = torch.tensor([label for *_, label in graphs])
    listed = [Data(x=x, edge_index=e.flip(0), y=torch.tensor([y])) for x, e, y in graphs]
    loader = DataLoader(listed, batch_size=BATCH, shuffle=True)
    start = time.process_time()
    data = model.ground(x=ragged([g[0] for g in graphs]), edge=ragged([g[1] for g in graphs]))
    model(data[list(range(BATCH))])
    once = time.process_time() - start
    batches = model.batches(data, batch=BATCH)

    def plain():
        for numbers in torch.randperm(len(graphs)).split(BATCH):
            own = [graphs[n] for n in numbers.tolist()]
            inputs = {"x": ragged([g[0] for g in own]), "edge": ragged([g[1] for g in own])}
            cross_entropy(model(**inputs), labels[numbers]).backward()

    def gathered():
        for batch in batches:
            cross_entropy(model(batch), labels[batch.index]).backward()

    def theirs():
        for batch in loader:
            cross_entropy(peer(batch), batch.y).backward()

    runs = {"gathered": gathered, "plain": plain, "pyg": theirs}
    runs |= {"gather_alone": lambda: list(batches), "pyg_collate_alone": lambda: list(loader)}
    found = in_turn(runs) | {"ground_once": round(once, 3)}
    found["gathered_over_pyg"] = round(found["gathered"] / found["pyg"], 2)
    found["plain_over_pyg"] = round(found["plain"] / found["pyg"], 2)
    found["gather_over_collate"] = round(found["gather_alone"] / found["pyg_collate_alone"], 2)
    return found


def in_turn(runs, warm=2):
    times = {name: [] for name in runs}
    for repeat in range(REPEATS + warm):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if repeat >= warm:
                times[name].append(time.process_time() - start)
    return {name: round(min(each), 4) for name, each in times.items()}


def new_graphs(count=16, edges=40_000, nodes=8_000):
    """Two layers of GraphSAGE on another graph at every call, forward and backward."""

    def layer(x, y, out, size):
        neighbours = (y(V.I) <= (x(V.J)[out, size], R._edge(V.J, V.I))) | [F.avg_agg]
        return [y(V.I) <= x(V.I)[out, size], neighbours]

    rules = [*layer(R.x, R.h, D, D), R.h / 1 | [F.relu], *layer(R.h, R.out, 16, D)]
    model = Program(rules).compile(R.out, seed=0)
    one, two = pyg.SAGEConv(D, D, bias=False), pyg.SAGEConv(D, 16, bias=False)
    times = {"ours": [], "pyg": []}
    for k in range(count):
        torch.manual_seed(k)
        n = nodes + k
        edge, x = torch.randint(n, (2, edges)).unique(dim=1), torch.randn(n, D)
        edge = edge[:, torch.randperm(edge.shape[1])]
        start = time.process_time()
        model(x=x, edge=edge).sum().backward()
        middle = time.process_time()
        two(one(x, edge).relu(), edge).sum().backward()
        times["ours"].append(middle - start)
        times["pyg"].append(time.process_time() - middle)
    found = {name: round(statistics.median(each[3:]), 4) for name, each in times.items()}
    return found | {"over_pyg": round(found["ours"] / found["pyg"], 2), "edges": edges}


def main():
    torch.set_num_threads(1)
    names = sys.argv[1:] or ["PROTEINS", "MUTAG", "molecules", "new_graphs"]
    found = written("shuffled")
    for name in names:
        if name == "new_graphs":
            found[name] = new_graphs()
            print(name, found[name], flush=True)
            continue
        graphs = molecules() if name == "molecules" else read(name)
        found[name] = {"graphs": len(graphs)}
        for kind in MODELS:
            found[name][kind] = epochs(graphs, kind)
            print(name, kind, found[name][kind], flush=True)
    write("shuffled", found)


if __name__ == "__main__":
    main()
