"""From a recurrent network to attention with heads, one or two rules at a time.

Every network is compared with the same network in plain torch.
"""

import math

import torch

from edgewise import F, Program, R, V, W

N, D, HEADS = 6, 8, 2
torch.manual_seed(0)
x = torch.randn(N, D, dtype=torch.float64)
edges = torch.tensor([[1, 2, 3, 4, 5, 0, 3], [0, 1, 2, 3, 4, 5, 0]])  # i attends to j
mask = torch.zeros(N, N, dtype=torch.bool)
mask[edges[0], edges[1]] = True
SOFTMAX = F.softmax_agg(agg_terms=[V.J])


def check(title, rules, before, plain, **inputs):
    program = Program(list(rules.values()), domains={V.H: HEADS})
    model = program.compile(R.h, seed=1, dtype=torch.float64).requires_grad_(False)
    torch.testing.assert_close(model(**inputs), plain(model.weight), rtol=1e-10, atol=1e-10)
    changed = [rule for name, rule in rules.items() if repr(before.get(name)) != repr(rule)]
    assert len(changed) <= 2 or not before
    print(f"\n{title}", *changed, sep="\n    ")


rnn = {
    "first": R.h(0) <= R.x(0)["U":D, D],
    "next": R.h(V.I) <= (R.x(V.I)["U"], R.h(V.J)["V":D, D], R.special.next(V.J, V.I)),
    "activation": R.h / 1 | [F.tanh],
}


def recurrent(w):
    states = [torch.tanh(w("U") @ x[0])]
    for now in x[1:]:
        states.append(torch.tanh(w("U") @ now + w("V") @ states[-1]))
    return torch.stack(states)


check("1. A recurrent network: i reads the state before it", rnn, {}, recurrent, x=x)

gnn = {
    "context": R.context(V.I) <= (R._edge(V.I, V.J), R.x(V.J)["V":D, D]),
    "h": (R.h(V.I) <= (R.x(V.I)["U":D, D], R.context(V.I))) | [F.tanh],
}
total = mask.double() @ x
check("2. A graph network: i reads its neighbours", gnn, rnn,
      lambda w: torch.tanh(x @ w("U").T + total @ w("V").T), x=x, edge=edges)  # fmt: skip

score = (R.x(V.J).T @ R.x(V.I)["A":D, D])[1 / math.sqrt(D)].fixed()
gat = gnn | {
    "weight": (R.weight(V.I, V.J) <= (score, R._edge(V.I, V.J))) | [SOFTMAX],
    "context": (R.context(V.I) <= (R.weight(V.I, V.J), R.x(V.J)["V":D, D])) | [F.product],
}


def attended(form, value):
    scores = (x @ form.T @ x.T / math.sqrt(D)).masked_fill(~mask, -math.inf)
    return scores.softmax(-1) @ x @ value.T


check("3. Attention: neighbours are weighted", gat, gnn,
      lambda w: torch.tanh(x @ w("U").T + attended(w("A"), w("V"))), x=x, edge=edges)  # fmt: skip

by_head = (R.x(V.J).T @ R.x(V.I)[W.A(V.H)[D, D]])[1 / math.sqrt(D)].fixed()
heads = gat | {
    "weight": (R.weight(V.H, V.I, V.J) <= (by_head, R._edge(V.I, V.J))) | [SOFTMAX],
    "context": (R.context(V.I) <= (R.weight(V.H, V.I, V.J), R.x(V.J)[W.V(V.H)[D, D]]))
    | [F.product],
}

check("4. Heads: several attention heads", heads, gat,
      lambda w: torch.tanh(x @ w("U").T + sum(map(attended, w("A"), w("V")))),
      x=x, edge=edges)  # fmt: skip
assert (len(rnn), len(gnn), len(gat), len(heads)) == (3, 2, 3, 3)  # rules
