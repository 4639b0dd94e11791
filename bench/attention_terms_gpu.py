"""Terms of attention on the GPU: scores, biases, edge vectors and dropout against float64; times.

PYTHONPATH=src:bench python3 bench/attention_terms_gpu.py [checks] [times]

A kernel must be no further from float64 than the plain reference in the same precision is, and
give the same bits when it runs again.
"""

import sys
import traceback

import torch
from measure import gpu_ms, skip, write

from edgewise.graphs import causal, global_tokens, random_edges, strided, window
from edgewise.kernels.attention import attention
from edgewise.scores import H, I, J, S, alibi, relative, scalar, softcap, table, tanh, where

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS: list[dict] = []
SCORES = {
    "softcap": lambda values, one: {"score": softcap(2.0)},
    "alibi": lambda values, one: {"bias": -scalar(one) * abs(I - J)},
    "relative": lambda values, one: {"bias": relative(values)},
    "capped": lambda values, one: {"score": (S + relative(values)).at(softcap(3.0)) * scalar(one)},
    "places": lambda values, one: {
        "score": where(I > J + 2, S * 0.5 + H, S) + tanh(table(values, J))
    },
}
EDGES = ("edge_bias", "edge_scale", "edge_key", "edge_value")


def note(**values):
    ROWS.append(values)
    print(" ".join(f"{k}={v}" for k, v in values.items()), flush=True)


def numbers(term, graph, n, heads, shared, d):
    random = torch.Generator().manual_seed(0)
    query, e = heads * shared, graph.count(n)
    shapes = {"q": (1, query, n, d), "k": (1, heads, n, d), "v": (1, heads, n, d)}
    terms = {
        "bias": (1, query, n, n),
        "key_bias": (query, 1, n),
        "edge_bias": (query, e),
        "edge_scale": (query, e),
        "edge_key": (heads, e, d),
        "edge_value": (heads, e, d),
    }
    shapes |= {term: terms[term]} if term in terms else {}
    shapes |= {"table": (query, 31), "one": (query,)} if term in SCORES else {}
    return {x: torch.randn(s, generator=random).to(DEVICE) for x, s in shapes.items()}


def results(term, graph, tensors, dtype, kernel, dropout):
    given = {name: x.to(dtype).requires_grad_() for name, x in tensors.items()}
    options = {"bias" if "bias" in name and name not in EDGES else name: given[name]
               for name in given if name == term}  # fmt: skip
    if term in SCORES:
        options = SCORES[term](given["table"], given["one"])
    torch.manual_seed(3)
    q, k, v = (given[name] for name in "qkv")
    out = attention(q, k, v, graph, kernel=kernel, dropout=dropout, **options)
    random = torch.Generator().manual_seed(1)
    weight = torch.randn(out.shape, generator=random).to(DEVICE)
    grads = torch.autograd.grad(
        (out * weight.to(dtype)).sum(), list(given.values()), materialize_grads=True
    )
    return [x.detach().double() for x in (out, *grads)]


def check(term, graph, n, dtype, kernel, dropout=0.0, heads=2, shared=2, d=32):
    row = {"term": term, "kernel": kernel, "graph": repr(graph), "dtype": str(dtype)[6:]}
    row["dropout"] = dropout
    try:
        tensors = numbers(term, graph, n, heads, shared, d)
        tensors = {name: x.to(dtype) for name, x in tensors.items()}
        exact = results(term, graph, tensors, torch.float64, "reference", dropout)
        plain = results(term, graph, tensors, dtype, "reference", dropout)
        ours, again = (results(term, graph, tensors, dtype, kernel, dropout) for _ in range(2))

        def away(found):
            pairs = zip(found, exact, strict=True)
            return [((a - b).norm() / b.norm().clamp(min=1e-9)).item() for a, b in pairs]

        errors, simple = away(ours), away(plain)
        row["fine"] = all(a <= 2 * b + 1e-5 for a, b in zip(errors, simple, strict=True))
        row["same_again"] = all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))
        row["error"], row["plain"] = [f"{e:.1e}" for e in errors], [f"{e:.1e}" for e in simple]
    except Exception as error:
        row |= {"fine": False, "failed": f"{type(error).__name__}: {error}"[:300]}
    note(**row)


def checks():
    on_gpu = {"triton_blocks": ("bias", "key_bias", *SCORES), "triton_csr": (*EDGES, *SCORES)}
    kernels = on_gpu if DEVICE == "cuda" else {}
    for kernel, terms in kernels.items():
        for term in terms:
            for dtype in (torch.float32, torch.bfloat16):
                check(term, window(40) & causal(), 333, dtype, kernel, dropout=0.2)
        check("capped", global_tokens(3) | window(5), 3000, torch.bfloat16, kernel, shared=1)
        check("alibi", window(70), 300, torch.float16, kernel, d=128)
    others = {
        "rectangles": causal(),
        "permuted": strided(4) & causal(),
        "blocks": window(40),
        "gather": random_edges(8, seed=0),
        "union": window(9) | random_edges(2, seed=0),
    }
    for kernel, graph in others.items():
        for term in ("relative", "capped", "key_bias", "edge_bias"):
            if kernel != "permuted" or term in SCORES:
                check(term, graph, 333, torch.bfloat16, kernel)
    compiled()


def compiled():
    """torch.compile on this device, with a graph and a score made inside."""
    values = torch.randn(4, 15, device=DEVICE, requires_grad=True)

    def layer(q, values):
        return attention(q, q, q, window(9), score=softcap(5.0), bias=relative(values))

    q = torch.randn(2, 4, 300, 32, device=DEVICE, requires_grad=True)
    try:
        plain = torch.autograd.grad(layer(q, values).sum(), (q, values))
        traced = torch.compile(layer, fullgraph=True)(q, values)
        found = torch.autograd.grad(traced.sum(), (q, values))
        near = [torch.allclose(a, b, atol=1e-4) for a, b in zip(plain, found, strict=True)]
        note(term="torch.compile", fine=all(near))
    except Exception as error:
        note(term="torch.compile", fine=False, failed=f"{type(error).__name__}: {error}"[:300])


def times():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    flex = torch.compile(flex_attention, dynamic=False)
    n, heads, graph = 65536, 16, window(256)
    q, k, v = (
        torch.randn(1, heads, n, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )
    slopes = torch.rand(heads, device="cuda")
    values = torch.randn(heads, 513, device="cuda", requires_grad=True)
    mask = create_block_mask(lambda b, h, i, j: (i - j).abs() <= 256, None, None, n, n)
    cases = {
        "plain": ({}, None),
        "softcap": ({"score": softcap(50.0)}, lambda s, b, h, i, j: 50 * torch.tanh(s / 50)),
        "alibi": (
            {"bias": alibi(slopes)}, lambda s, b, h, i, j: s - slopes[h] * (i - j).abs()
        ),
        "relative": (
            {"bias": relative(values)},
            lambda s, b, h, i, j: s + values[h, (i - j).clamp(-256, 256) + 256],
        ),
        "dropout": ({"dropout": 0.1}, None),
    }  # fmt: skip
    for name, (options, score_mod) in cases.items():
        row = {"time": name, "n": n}
        runs = {"ours": lambda o=options: attention(q, k, v, graph, **o)}
        if score_mod is not None or name == "plain":
            runs["flex"] = lambda f=score_mod: flex(q, k, v, score_mod=f, block_mask=mask)
        for who, run in runs.items():
            try:
                weight = torch.randn_like(run())
                with torch.no_grad():
                    row[who] = gpu_ms(run)
                row[f"{who}_both"] = gpu_ms(
                    lambda run=run, w=weight: torch.autograd.grad(run(), (q, k, v), w)
                )
            except Exception as error:
                row[f"{who}_failed"] = f"{type(error).__name__}: {error}"[:200]
        note(**row)


def main():
    if DEVICE != "cuda" and "--here" not in sys.argv:
        skip("there is no CUDA GPU here")
    failed = False
    for section in (checks, times):
        if section.__name__ in sys.argv or not {"checks", "times"} & set(sys.argv):
            try:
                section()
            except Exception:
                traceback.print_exc()
                failed = True
    write("attention_terms_gpu", ROWS)
    wrong = [row for row in ROWS if row.get("fine") is False or row.get("same_again") is False]
    print(f"{len(ROWS)} rows, {len(wrong)} wrong")
    sys.exit(failed or bool(wrong))


if __name__ == "__main__":
    main()
