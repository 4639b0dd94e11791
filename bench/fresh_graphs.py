"""A new graph in every call, as sampled subgraphs are: forward and backward beside PyG, on a CPU.

Calls alternate, in process time; each graph is seen once by each library, and has other numbers of
nodes and edges than those before it. The first calls, which compile the loops, are not counted.
"""

import statistics
import time
from collections.abc import Callable

import torch
from measure import write
from torch import Tensor
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

from edgewise import F, Model, Program, R, V, W

GRAPHS = ((100, 400), (250, 1_000), (1_000, 4_000), (10_000, 40_000))  # nodes, edges
SIZE, HEADS, FIRST, CALLS = 64, 4, 3, 25


def mean_layer() -> tuple[Model, torch.nn.Module]:
    """GraphSAGE: the mean of neighbours, and the node itself."""
    program = Program(
        [
            R.z(V.J) <= R.x(V.J)["neighbour":SIZE, SIZE],
            (R.mean(V.I) <= (R._edge(V.J, V.I), R.z(V.J))) | [F.avg_agg],
            R.h(V.I) <= R.x(V.I)["own":SIZE, SIZE],
            R.h(V.I) <= R.mean(V.I),
        ]
    )
    return program.compile(R.h, seed=0), SAGEConv(SIZE, SIZE, bias=False)


def normalised_layer() -> tuple[Model, torch.nn.Module]:
    """GCN, with the degrees of both ends."""
    program = Program(
        [
            (R.degree(V.I) <= R._edge(V.J, V.I)) | [F.count_agg],
            R.norm(V.I) <= F.inverse(F.sqrt(R.degree(V.I))),
            R.z(V.J) <= R.x(V.J)["w":SIZE, SIZE],
            (R.h(V.I) <= (R._edge(V.J, V.I), R.norm(V.I), R.norm(V.J), R.z(V.J))) | [F.product],
        ]
    )
    theirs = GCNConv(SIZE, SIZE, bias=False, add_self_loops=False)
    return program.compile(R.h, seed=0, fill=0.0, dense=True), theirs


def sum_layer() -> tuple[Model, torch.nn.Module]:
    """GIN: the sum of neighbours and the node itself, through two layers."""
    program = Program(
        [
            R.sum(V.I) <= R.x(V.I),
            R.sum(V.I) <= (R._edge(V.J, V.I), R.x(V.J)),
            (R.inner(V.I) <= R.sum(V.I)["inner":SIZE, SIZE]) | [F.relu],
            R.h(V.I) <= R.inner(V.I)["outer":SIZE, SIZE],
        ]
    )
    linear = [torch.nn.Linear(SIZE, SIZE, bias=False) for _ in range(2)]
    return program.compile(R.h, seed=0), GINConv(
        torch.nn.Sequential(linear[0], torch.nn.ReLU(), linear[1])
    )


def attention_layer() -> tuple[Model, torch.nn.Module]:
    """GAT of four heads."""
    each = SIZE // HEADS
    program = Program(
        [
            R.z(V.H, V.I) <= R.x(V.I)[W.lin(V.H)[each, SIZE]],
            (
                R.weight(V.H, V.I, V.J)
                <= (
                    R.z(V.H, V.I)[W.target(V.H)[1, each]],
                    R.z(V.H, V.J)[W.source(V.H)[1, each]],
                    R._edge(V.J, V.I),
                )
            )
            | [F.leaky_relu(0.2), F.softmax_agg(agg_terms=[V.J])],
            (R.head(V.H, V.I) <= (R.weight(V.H, V.I, V.J), R.z(V.H, V.J))) | [F.product],
            (R.out(V.I) <= R.head(V.H, V.I)) | [F.concat_agg],
        ],
        domains={V.H: HEADS},
    )
    theirs = GATConv(SIZE, each, heads=HEADS, bias=False, add_self_loops=False)
    return program.compile(R.out, seed=0, fill=0.0), theirs


def seconds(run: Callable[[], Tensor]) -> tuple[float, float]:
    """Of a forward pass, and of it with the backward pass."""
    start = time.process_time()
    found = run()
    forward = time.process_time() - start
    found.sum().backward()
    return forward, time.process_time() - start


def compared(ours: Model, theirs: torch.nn.Module, nodes: int, edges: int) -> dict[str, float]:
    found = []
    for call in range(FIRST + CALLS):
        n = nodes + call
        x, edge = torch.randn(n, SIZE), torch.randint(n, (2, edges + 3 * call)).unique(dim=1)
        mine = seconds(lambda x=x, edge=edge: ours(x=x, edge=edge))
        found.append((*mine, *seconds(lambda x=x, edge=edge: theirs(x, edge))))
    columns = zip(*found[FIRST:], strict=True)
    forward, both, pyg_forward, pyg = (statistics.median(column) for column in columns)
    times = {"edgewise_ms": both, "pyg_ms": pyg}
    times |= {"edgewise_forward_ms": forward, "pyg_forward_ms": pyg_forward}
    ratios = {"ratio": both / pyg, "forward_ratio": forward / pyg_forward}
    found_ms = {name: round(seconds * 1e3, 2) for name, seconds in times.items()}
    return found_ms | {name: round(ratio, 2) for name, ratio in ratios.items()}


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = {"mean (GraphSAGE)": mean_layer, "attention (GAT)": attention_layer}
    layers |= {"normalised (GCN)": normalised_layer, "sum (GIN)": sum_layer}
    results = []
    for nodes, edges in GRAPHS:
        found = {name: compared(*layer(), nodes, edges) for name, layer in layers.items()}
        print(nodes, edges, found)
        results.append({"nodes": nodes, "edges": edges, "size": SIZE, "layers": found})
    write("fresh_graphs", {"graphs": results})


if __name__ == "__main__":
    main()
