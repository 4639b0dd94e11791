"""A causal window of 256 keys at 64k tokens, 8 heads of 64: one training step on a CPU, with the
most memory that the process ever held."""

import resource

import torch
from measure import cpu_seconds, write

from edgewise.graphs import causal, window
from edgewise.kernels.attention import attention


def main() -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 8, 65536, 64, requires_grad=True) for _ in range(3))
    graph = window(255) & causal()
    before = peak()
    time = cpu_seconds(
        lambda: torch.autograd.grad(attention(q, k, v, graph).sum(), (q, k, v)), repeats=1
    )
    result = {"ours": time, "peak_gib": peak(), "inputs_and_torch_gib": before}
    print(result, "(bar: 4 GiB)")
    write("long_window_cpu", result)


def peak() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)


if __name__ == "__main__":
    main()
