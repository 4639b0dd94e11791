"""A random graph of degree 32 at 8k tokens, 8 heads of 64, forward and backward with the gradient
of a bias per edge, on a CPU: ours against gather and scatter in torch, one run, one thread."""

import torch
from measure import cpu_seconds, write

from edgewise.graphs import random_edges
from edgewise.kernels.attention import attention


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    n, heads, d = 8192, 8, 64
    graph = random_edges(32, seed=0)
    i, j = graph.edges(n)
    q, k, v = (torch.randn(heads, n, d, requires_grad=True) for _ in range(3))
    bias = torch.randn(heads, len(i), requires_grad=True)

    def ours() -> None:
        out = attention(q, k, v, graph, edge_bias=bias)
        torch.autograd.grad(out.sum(), (q, k, v, bias))

    def scatter() -> None:
        score = (q[:, i] * k[:, j]).sum(-1) / d**0.5 + bias
        top = torch.full((heads, n), -torch.inf).scatter_reduce(
            1, i.expand(heads, -1), score, "amax"
        )
        weight = (score - top.detach()[:, i]).exp()
        total = torch.zeros(heads, n).index_add(1, i, weight)
        out = torch.zeros(heads, n, d).index_add(1, i, (weight / total[:, i])[..., None] * v[:, j])
        torch.autograd.grad(out.sum(), (q, k, v, bias))

    mine, theirs = cpu_seconds(ours), cpu_seconds(scatter, repeats=1)
    times = round(theirs["cpu_s"] / mine["cpu_s"], 1)
    print(f"ours {mine}, gather and scatter {theirs}: {times}× (bar: 15×)")
    write("random_graph_cpu", {"ours": mine, "gather_scatter": theirs, "times": times})


if __name__ == "__main__":
    main()
