"""A causal window of 256 keys at 8k tokens, 8 heads of 64, forward and backward, on a CPU:
ours against dense SDPA with a mask, one run, one thread."""

import torch
from measure import cpu_seconds, write
from torch.nn.functional import scaled_dot_product_attention

from edgewise.graphs import causal, window
from edgewise.kernels.attention import attention, case_of, choose


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    n = 8192
    q, k, v = (torch.randn(1, 8, n, 64, requires_grad=True) for _ in range(3))
    graph = window(255) & causal()
    mask = graph.dense(n)

    def ours() -> None:
        torch.autograd.grad(attention(q, k, v, graph).sum(), (q, k, v))

    def dense() -> None:
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask)
        torch.autograd.grad(out.sum(), (q, k, v))

    mine, theirs = cpu_seconds(ours), cpu_seconds(dense, repeats=1)
    times = round(theirs["cpu_s"] / mine["cpu_s"], 1)
    print(f"ours {mine}, dense SDPA with a mask {theirs}: {times}× (bar: 10×)")
    kernel = choose(case_of(q, k, v, graph)).name
    write("window_cpu", {"ours": mine, "kernel": kernel, "dense_mask": theirs, "times": times})


if __name__ == "__main__":
    main()
