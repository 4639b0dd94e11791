"""A new graph in every call, as sampled subgraphs are: forward and backward beside PyG, on a CPU.

Calls alternate, in process time; each graph is seen once by each library. The first call, which
compiles the loops, is not counted.
"""

import statistics
import time
from collections.abc import Callable

import torch
from measure import write
from torch import Tensor
from torch_geometric.nn import GATConv, SAGEConv

from edgewise import F, Model, Program, R, V, W

GRAPHS = ((1_000, 4_000), (10_000, 40_000))  # nodes, edges
SIZE, HEADS, CALLS = 64, 4, 15


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


def seconds(run: Callable[[], Tensor]) -> float:
    start = time.process_time()
    run().sum().backward()
    return time.process_time() - start


def compared(ours: Model, theirs: torch.nn.Module, nodes: int, edges: int) -> dict[str, float]:
    x, found = torch.randn(nodes, SIZE), []
    for _ in range(CALLS + 1):
        edge = torch.randint(nodes, (2, edges)).unique(dim=1)
        one = seconds(lambda edge=edge: ours(x=x, edge=edge))
        found.append((one, seconds(lambda edge=edge: theirs(x, edge))))
    mine, pyg = (statistics.median(column) for column in zip(*found[1:], strict=True))
    times = {"edgewise_ms": round(mine * 1e3, 1), "pyg_ms": round(pyg * 1e3, 1)}
    return {**times, "ratio": round(mine / pyg, 2)}


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = {"mean (GraphSAGE)": mean_layer, "attention (GAT)": attention_layer}
    results = []
    for nodes, edges in GRAPHS:
        found = {name: compared(*layer(), nodes, edges) for name, layer in layers.items()}
        print(nodes, edges, found)
        results.append({"nodes": nodes, "edges": edges, "size": SIZE, "layers": found})
    write("fresh_graphs", {"graphs": results})


if __name__ == "__main__":
    main()
