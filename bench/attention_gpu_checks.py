"""Every attention kernel on the GPU itself, forward and all gradients, against float64.

PYTHONPATH=src:bench python3 bench/attention_gpu_checks.py [decoding launches one_order]

A kernel must be no further from float64 than the plain reference in the same precision is.
"""

import sys

import torch
from measure import issue_us, skip, write

from edgewise.graphs import (
    bigbird,
    causal,
    documents,
    full,
    global_tokens,
    random_edges,
    strided,
    window,
)
from edgewise.kernels.attention import attention

ROWS: list[dict] = []
BF16 = torch.bfloat16


def inputs(n, heads=16, d=64, dtype=BF16, shared=1, m=None, dv=None, batch=1, beside=False):
    """`beside`: tokens before heads in memory, as a projection gives them."""
    torch.manual_seed(0)
    keys = (batch, heads, m or n)
    shapes = [(batch, heads * shared, n, d), (*keys, d), (*keys, dv or d)]
    made = [torch.randn(s, device="cuda", dtype=dtype) for s in shapes]
    if beside:
        made = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in made]
    return [x.requires_grad_() for x in made]


def results(tensors, graph, dtype, kernel, edge_bias=None):
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in tensors)
    extra = {}
    at = [q, k, v]
    if edge_bias is not None:
        extra["edge_bias"] = edge_bias.detach().to(dtype).requires_grad_()
        at.append(extra["edge_bias"])
    out = attention(q, k, v, graph, kernel=kernel, **extra)
    random = torch.Generator("cuda").manual_seed(1)
    weight = torch.randn(out.shape, generator=random, device="cuda", dtype=torch.float64)
    grads = torch.autograd.grad((out * weight.to(dtype)).sum(), at)
    return [x.detach().double() for x in (out, *grads)]


def check(name, graph, n, dtype=BF16, kernel=None, edge=False, **shape):
    tensors = inputs(n, dtype=dtype, **shape)
    m = shape.get("m") or n
    heads = tensors[0].shape[1]
    bias = torch.randn(heads, graph.count(n, m), device="cuda", dtype=dtype) if edge else None
    row = {"check": name, "kernel": kernel, "dtype": str(dtype).removeprefix("torch.")}
    try:
        exact = results(tensors, graph, torch.float64, "reference", bias)
        plain = results(tensors, graph, dtype, "reference", bias)
        ours = results(tensors, graph, dtype, kernel, bias)
        again = results(tensors, graph, dtype, kernel, bias)
        errors = [((a - b).norm() / b.norm()).item() for a, b in zip(ours, exact, strict=True)]
        simple = [((a - b).norm() / b.norm()).item() for a, b in zip(plain, exact, strict=True)]
        row["fine"] = all(a <= 1.5 * b + 1e-6 for a, b in zip(errors, simple, strict=True))
        row["same_again"] = all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))
        row["error"], row["plain"] = [f"{e:.1e}" for e in errors], [f"{e:.1e}" for e in simple]
    except Exception as error:
        row |= {"fine": False, "failed": f"{type(error).__name__}: {error}"[:300]}
    ROWS.append(row)
    print(" ".join(f"{k}={v}" for k, v in row.items()), flush=True)


def one_order():
    """What cuDNN adds up in any order, asked for one."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # cuBLAS would want a setting
    check("documents, one order", documents([300, 400, 324]), 1024, BF16, "rectangles", heads=2)
    for graph in (full(), causal()):
        check("chosen, one order", graph, 1000, BF16, None, heads=2, shared=2)
    torch.use_deterministic_algorithms(False)


GRAPHS = {
    "window": window(40),
    "split rows": global_tokens(3) | window(5),
    "edges": random_edges(9, seed=0) | window(0),
    "causal": causal(),
}


def repeated(what, graph, make, run=None):
    """Calls that find their launches again give what the first one gave, to the bit."""
    row = {"check": what, "kernel": None, "dtype": "bfloat16"}
    try:
        run = run or (lambda q, k, v: both_ways(q, k, v, graph))
        right = both_ways(*make(), graph)  # on contiguous copies, in the usual way
        found = [run(*make()) for _ in range(4)]
        torch.cuda.synchronize()
        row["same_again"] = all(
            torch.equal(a, b) for one in found[1:] for a, b in zip(one, found[0], strict=True)
        )
        near = [
            torch.allclose(a.float(), b.float(), atol=2e-2, rtol=2e-2)
            for a, b in zip(found[0], right, strict=False)
        ]
        row["fine"] = all(near) and (row["same_again"] or graph == causal())  # cuDNN's order varies
    except Exception as error:
        row |= {"fine": False, "failed": f"{type(error).__name__}: {error}"[:300]}
    ROWS.append(row)
    print(" ".join(f"{k}={v}" for k, v in row.items()), flush=True)


def both_ways(q, k, v, graph):
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    out = attention(q, k, v, graph)
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), torch.ones_like(out))]


def launches():
    """Streams, strides, addresses and modes that a launch must not be mixed up by."""
    torch.manual_seed(0)
    base = [torch.randn(1, 2, 3001, 64, device="cuda", dtype=BF16) for _ in range(3)]
    for name, graph in GRAPHS.items():
        repeated(f"{name}, the same addresses", graph, lambda: base)
        repeated(f"{name}, other addresses", graph, lambda: [x.clone() for x in base])
        repeated(f"{name}, not aligned", graph, lambda: list(map(moved, base)))
        repeated(f"{name}, tokens first", graph, lambda: list(map(beside, base)))
        repeated(f"{name}, a part of more", graph, lambda: list(map(widened, base)))
        for mode in (torch.no_grad, torch.inference_mode):
            run = in_mode(mode, graph)
            repeated(f"{name}, {mode.__name__}", graph, lambda: base, run)
        repeated(f"{name}, another stream", graph, lambda: base, on_streams(graph))
        repeated(f"{name}, autocast", graph, lambda: base, in_autocast(graph))
        repeated(f"{name}, a CUDA graph", graph, lambda: base, captured(graph))
        repeated(f"{name}, an empty batch", graph, lambda: [x[:0] for x in base])


def moved(x):
    """At an address that is not a multiple of 16 bytes."""
    return torch.empty(x.numel() + 1, device="cuda", dtype=x.dtype)[1:].view(x.shape).copy_(x)


def beside(x):
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def widened(x):
    return torch.cat([x, x], -1)[..., : x.shape[-1]]


def in_mode(mode, graph):
    def run(q, k, v):
        with mode():
            return [attention(q, k, v, graph).clone()]

    return run


def in_autocast(graph):
    def run(q, k, v):
        with torch.autocast("cuda", BF16):
            return both_ways(q.float(), k.float(), v.float(), graph)

    return run


def on_streams(graph):
    streams = [torch.cuda.Stream() for _ in range(3)]

    def run(q, k, v):
        found = []
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                found.append(both_ways(q, k, v, graph))
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for one in found for a, b in zip(one, found[0], strict=True))
        return found[0]

    return run


def captured(graph):
    def run(q, k, v):
        still = [torch.zeros_like(x) for x in (q, k, v)]
        attention(*still, graph)
        torch.cuda.synchronize()
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded), torch.no_grad():
            out = attention(*still, graph)
        for x, y in zip(still, (q, k, v), strict=True):
            x.copy_(y)
        recorded.replay()
        return [out.clone()]

    return run


def decoding():
    """One or few queries over a cache, by whatever is chosen: the same rows of the graph, through
    repeated launches, slices of a buffer, lengths of a batch, and a CUDA graph."""
    wide = {"heads": 2, "shared": 4, "d": 128, "batch": 2}
    for name, graph, n in (
        ("causal", causal(), 1),
        ("causal window", window(300) & causal(), 1),
        ("causal window", window(300) & causal(), 4),
        ("causal", causal(), 4),
        ("sinks", (window(300) | global_tokens(4)) & causal(), 1),
        ("strided", strided(8) & causal(), 1),
    ):
        for dtype in (BF16, torch.float32):
            decoded(f"{name}, {n} last", graph, n, dtype, **wide)
    for dtype in (BF16, torch.float32):
        lengths = torch.tensor([3000, 1111], device="cuda")
        decoded("full, lengths", full(), 1, dtype, lengths=lengths, **wide)
        decoded("window, lengths", window(300), 2, dtype, lengths=lengths, **wide)
        decoded("no keys", full(), 1, dtype, lengths=lengths * 0, **wide)
    decoded("full, one head each", full(), 1, BF16, heads=8, d=64)
    decoded("full, d 80", full(), 1, BF16, heads=2, shared=4, d=80)


def decoded(name, graph, n, dtype, lengths=None, **shape):
    """The output of calls in a row, then captured, against the reference in float64; and, where
    there are no lengths, gradients."""
    row = {"check": f"decoding {name}", "dtype": str(dtype).removeprefix("torch.")}
    try:
        q, k, v = (x.detach() for x in inputs(n, m=4096, dtype=dtype, **shape))
        options = {"lengths": lengths} if lengths is not None else {}
        options |= {} if graph == full() else {"offset": 4096 - n}
        right = attention(*(x.double() for x in (q, k, v)), graph, kernel="reference", **options)
        plain = attention(q, k, v, graph, kernel="reference", **options)
        found = [attention(q, k, v, graph, **options) for _ in range(4)]
        cache = torch.cat([k, v], -1)  # read where they are
        of_k, of_v = cache[..., : k.shape[-1]], cache[..., k.shape[-1] :]
        found.append(attention(q, of_k, of_v, graph, **options))
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            out = attention(q, k, v, graph, **options)
        recorded.replay()
        found.append(out)
        allowed = 1.5 * (plain.double() - right).abs().max() + 4 * torch.finfo(dtype).eps
        errors = [(x.double() - right).abs().max() for x in found]
        row["fine"] = bool(max(errors) <= allowed)
        row["error"], row["allowed"] = f"{max(errors):.1e}", f"{allowed:.1e}"
        if lengths is None:
            row["fine"] &= _same_gradients(q, k, v, graph, options)
        row["host_us"] = issue_us(lambda: attention(q, k, v, graph, **options), 200)
    except Exception as error:
        row |= {"fine": False, "failed": f"{type(error).__name__}: {error}"[:300]}
    ROWS.append(row)
    print(" ".join(f"{k}={v}" for k, v in row.items()), flush=True)


def _same_gradients(q, k, v, graph, options):
    found = []
    for kernel in (None, "reference"):
        tensors = [x.detach().requires_grad_() for x in (q, k, v)]
        out = attention(*tensors, graph, kernel=kernel, **options)
        found.append(torch.autograd.grad(out.float().square().sum(), tensors))
    near = {"atol": 2e-2, "rtol": 5e-2} if q.dtype == BF16 else {"atol": 2e-4, "rtol": 2e-3}
    return all(torch.allclose(a, b, **near) for a, b in zip(*found, strict=True))


SECTIONS = {"decoding": decoding, "launches": launches, "one_order": one_order}


def main():
    if not torch.cuda.is_available():
        skip("there is no CUDA GPU here")
    if sys.argv[1:]:
        for name in sys.argv[1:]:
            SECTIONS[name]()
        return finished()
    for kernel in ("triton_blocks", "triton_csr"):
        for dtype in (BF16, torch.float16, torch.float32):
            check("window", window(40), 333, dtype, kernel, heads=2, shared=2)
        check("global", global_tokens(3) | window(5), 3000, BF16, kernel, heads=2)
        check("wide", window(40), 300, BF16, kernel, heads=2, d=128)
        check("odd features", window(40) & causal(), 300, BF16, kernel, heads=2, d=40, dv=24)
        check("more keys", window(40), 100, BF16, kernel, heads=2, m=333)
        check("two tokens", window(1), 2, BF16, kernel, heads=3)
        check("many heads", window(90), 700, BF16, kernel, heads=40)
    for d in (80, 112, 192, 256):
        for dtype in (BF16, torch.float32):
            both = window(40) & causal() | global_tokens(1)
            check(f"d {d}", both, 700, dtype, "triton_blocks", heads=2, shared=2, d=d)
    for graph in (full(), causal()):
        check("shared keys", graph, 700, BF16, "dense", heads=2, shared=4, batch=2)
    check("one query", full(), 1, BF16, "dense", heads=2, shared=4, m=5000)
    for batch, shared in ((1, 1), (2, 1), (2, 2)):
        layout = {"heads": 3, "batch": batch, "shared": shared, "beside": True}
        both = global_tokens(1) | window(40)
        check("heads beside one another", both, 3000, BF16, "triton_blocks", **layout)
    check("samples", window(40), 333, BF16, "triton_blocks", heads=2, batch=3, shared=2)
    check("bigbird", bigbird(64), 2048, BF16, "triton_blocks", heads=2)
    check("several runs in a row", strided(5) | window(9), 500, BF16, "triton_blocks", heads=2)
    check("no key in some rows", strided(3) - window(90), 160, BF16, "triton_blocks", heads=2)
    check("edge_bias", random_edges(16, seed=0), 500, torch.float32, "triton_csr", True, heads=2)
    check("strided", strided(8) & causal(), 1024, BF16, "permuted", heads=2)
    check("odd strided", strided(8), 1003, BF16, "permuted", heads=2)
    check("documents", documents([300, 400, 324]), 1024, BF16, "rectangles", heads=2)
    two = causal() & (global_tokens(100) | documents([300, 400, 324]))
    check("prefix", two, 1024, BF16, "rectangles", heads=2)
    for graph in (full(), causal(), strided(4) | window(8), window(3) | random_edges(3, seed=0)):
        check("chosen", graph, 1000, BF16, None, heads=2, shared=2)
    for section in SECTIONS.values():
        section()
    return finished()


def finished():
    write("attention_gpu_checks", ROWS)
    wrong = [row for row in ROWS if not row["fine"]]
    print(f"{len(ROWS) - len(wrong)} of {len(ROWS)} fine")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
