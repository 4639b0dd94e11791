"""From graph attention to the Transformer and its sparse forms, one or two rules at a time.

Goes on where `20_ladder_to_attention.py` ends; every rung equals plain torch.
"""

import math

import torch
from torch.nn import functional as f

from edgewise import F, Program, R, V, W
from edgewise.graphs import window

N, D, HEADS = 6, 8, 2
torch.manual_seed(0)
x = torch.randn(N, D, dtype=torch.float64)
edges = torch.tensor([[1, 2, 3, 4, 5, 0, 3], [0, 1, 2, 3, 4, 5, 0]])  # i attends to j
mask = torch.zeros(N, N, dtype=torch.bool)
mask[edges[0], edges[1]] = True


def weights(*where):
    score = (R.x(V.J).T @ R.x(V.I)[W.A(V.H)[D, D]])[1 / math.sqrt(D)].fixed()
    return (R.weight(V.H, V.I, V.J) <= (score, *where)) | [F.softmax_agg(agg_terms=[V.J])]


def check(title, rules, before, plain, **inputs):
    program = Program(list(rules.values()), domains={V.H: HEADS})
    model = program.compile(R.h, seed=1, dtype=torch.float64).requires_grad_(False)
    torch.testing.assert_close(model(**inputs), plain(model.weight), rtol=1e-10, atol=1e-10)
    changed = [rule for name, rule in rules.items() if repr(before.get(name)) != repr(rule)]
    assert len(changed) <= 2 or not before
    print(f"\n{title}", *changed, sep="\n    ")


def attended(w, pairs):
    found = torch.zeros(N, D, dtype=torch.float64)
    for form, value in zip(w("A"), w("V"), strict=True):
        scores = (x @ form.T @ x.T / math.sqrt(D)).masked_fill(~pairs, -math.inf)
        found += scores.softmax(-1) @ x @ value.T
    return found


def layer(w, pairs):
    mid = f.layer_norm(x + attended(w, pairs), (D,))
    return f.layer_norm(mid + torch.relu(mid @ w("in").T) @ w("out").T, (D,))


norm = F.norm(eps=1e-5)
normed = {
    "weight": weights(R._edge(V.I, V.J)),
    "context": (R.context(V.I) <= (R.weight(V.H, V.I, V.J), R.x(V.J)[W.V(V.H)[D, D]]))
    | [F.product],
    "mid": R.mid(V.I) <= norm(R.x(V.I) + R.context(V.I)),
    "h": R.h(V.I) <= R.mid(V.I),
}
check("5. What was there stays, and is normed", normed, {},
      lambda w: f.layer_norm(x + attended(w, mask), (D,)), x=x, edge=edges)  # fmt: skip

graph_transformer = normed | {
    "mlp": (R.mlp(V.I) <= R.mid(V.I)["in" : 2 * D, D]) | [F.relu],
    "h": R.h(V.I) <= norm(R.mid(V.I) + R.mlp(V.I)["out":D, 2 * D]),
}
check("6. A feed-forward network: the Graph Transformer", graph_transformer, normed,
      lambda w: layer(w, mask), x=x, edge=edges)  # fmt: skip

transformer = graph_transformer | {"weight": weights()}
check("7. The complete graph: the Transformer", transformer, graph_transformer,
      lambda w: layer(w, torch.ones(N, N, dtype=torch.bool)), x=x)  # fmt: skip

sparse = transformer | {"weight": weights(window(1)(V.I, V.J))}
near = (torch.arange(N)[:, None] - torch.arange(N)).abs() <= 1
check("8. A pattern of pairs: the sparse Transformer", sparse, transformer,
      lambda w: layer(w, near), x=x)  # fmt: skip
assert (len(normed), len(transformer), len(sparse)) == (4, 5, 5)  # rules
