"""From a recurrent network to the Transformer, one or two rules at a time.

Every step prints the rules that it changes, and is compared with the same network in plain torch.
"""

import math

import torch

from edgewise import F, Program, R, V, W
from edgewise.graphs import causal, window

N, D, HEADS, HIDDEN = 6, 8, 2, 16
torch.manual_seed(0)
x = torch.randn(N, D, dtype=torch.float64)
edges = torch.tensor([[1, 2, 3, 4, 5, 0, 3], [0, 1, 2, 3, 4, 5, 0]])  # i hears j: a chain, and more
SOFTMAX = F.softmax_agg(agg_terms=[V.J])


def compiled(rules):
    domains = {V.H: HEADS}
    model = Program(list(rules.values()), domains=domains).compile(R.h, seed=1, dtype=torch.float64)
    return model.requires_grad_(False)


def step(title, rules, before, expected, **inputs):
    """Say what changed, and check the numbers."""
    model = compiled(rules)
    found = model(**inputs)
    torch.testing.assert_close(found, expected(model.weight), rtol=1e-10, atol=1e-10)
    changed = [name for name in rules if repr(before.get(name)) != repr(rules[name])]
    assert len(changed) <= 2 or not before
    print(f"\n{title}")
    for name in changed:
        print(f"    {rules[name]}")
    gone = [name for name in before if name not in rules]
    if gone:
        print(f"    (without {', '.join(gone)})")
    return rules


def softmax_over(score, pairs):
    return score.masked_fill(~pairs, -math.inf).softmax(-1)


def norm(v):
    return torch.nn.functional.layer_norm(v, (D,))


hears = torch.zeros(N, N, dtype=torch.bool)
hears[edges[0], edges[1]] = True
every = torch.ones(N, N, dtype=torch.bool)

# 1. a recurrent network: the graph is a chain, and time runs along it
rnn = {
    "first": R.h(0) <= R.x(0)["U":D, D],
    "next": R.h(V.I) <= (R.x(V.I)["U"], R.h(V.J)["V":D, D], R.special.next(V.J, V.I)),
    "bend": R.h / 1 | [F.tanh],
}


def recurrent(weight):
    states = [torch.tanh(weight("U") @ x[0])]
    for now in x[1:]:
        states.append(torch.tanh(weight("U") @ now + weight("V") @ states[-1]))
    return torch.stack(states)


step("1. A recurrent network: i hears its own past", rnn, {}, recurrent, x=x)

# 2. any graph, and one step of time: h = σ(U x + Σ V xⱼ)
gnn = {
    "heard": R.heard(V.I) <= (R._hears(V.I, V.J), R.x(V.J)["V":D, D]),
    "h": (R.h(V.I) <= (R.x(V.I)["U":D, D], R.heard(V.I))) | [F.tanh],
}


def summed(weight):
    return torch.tanh(x @ weight("U").T + hears.double() @ x @ weight("V").T)


step("2. The basic graph network: i hears its neighbours", gnn, rnn, summed, x=x, hears=edges)


# 3. attention in place of the sum
def score(*where, form=W.A[D, D]):
    """xⱼᵀ A xᵢ / √d, where A = KᵀQ of the usual keys and queries."""
    dot = R.x(V.J).T @ R.x(V.I)[form]
    return dot[1 / math.sqrt(D)].fixed(), *where


gat = gnn | {
    "weight": (R.weight(V.I, V.J) <= score(R._hears(V.I, V.J))) | [SOFTMAX],
    "heard": (R.heard(V.I) <= (R.weight(V.I, V.J), R.x(V.J)["V":D, D])) | [F.product],
}


def attended(weight, pairs=hears):
    scores = x @ weight("A").T @ x.T / math.sqrt(D)
    return softmax_over(scores, pairs) @ x @ weight("V").T


step(
    "3. Attention: neighbours are weighed before they are summed (graph attention)",
    gat,
    gnn,
    lambda w: torch.tanh(x @ w("U").T + attended(w)),
    x=x,
    hears=edges,
)


# 4. heads: one more variable, and the sum is over it too
def heads(*where):
    return (R.weight(V.H, V.I, V.J) <= score(*where, form=W.A(V.H)[D, D])) | [SOFTMAX]


headed = gat | {
    "weight": heads(R._hears(V.I, V.J)),
    "heard": (R.heard(V.I) <= (R.weight(V.H, V.I, V.J), R.x(V.J)[W.V(V.H)[D, D]])) | [F.product],
}


def all_heads(weight, pairs):
    out = torch.zeros(N, D, dtype=torch.float64)
    for h in range(HEADS):
        scores = x @ weight("A")[h].T @ x.T / math.sqrt(D)
        out += softmax_over(scores, pairs) @ x @ weight("V")[h].T
    return out


step(
    "4. Heads: several ways to listen",
    headed,
    gat,
    lambda w: torch.tanh(x @ w("U").T + all_heads(w, hears)),
    x=x,
    hears=edges,
)

# 5. a residual and a norm
normed = headed | {
    "mid": R.mid(V.I) <= F.norm(eps=1e-5)(R.x(V.I) + R.heard(V.I)),
    "h": R.h(V.I) <= R.mid(V.I),
}
step(
    "5. What was there stays, and is normed",
    normed,
    headed,
    lambda w: norm(x + all_heads(w, hears)),
    x=x,
    hears=edges,
)

# 6. a feed-forward network: the Graph Transformer
graph_transformer = normed | {
    "thought": (R.thought(V.I) <= R.mid(V.I)["in":HIDDEN, D]) | [F.relu],
    "h": R.h(V.I) <= F.norm(eps=1e-5)(R.mid(V.I) + R.thought(V.I)["out":D, HIDDEN]),
}


def layer(weight, pairs):
    mid = norm(x + all_heads(weight, pairs))
    return norm(mid + torch.relu(mid @ weight("in").T) @ weight("out").T)


step(
    "6. A feed-forward network: the Graph Transformer",
    graph_transformer,
    normed,
    lambda w: layer(w, hears),
    x=x,
    hears=edges,
)

# 7. the complete graph: the Transformer
transformer = graph_transformer | {"weight": heads()}
step(
    "7. The complete graph: the Transformer",
    transformer,
    graph_transformer,
    lambda w: layer(w, every),
    x=x,
)

# 8. a mask is a smaller graph again: the sparse Transformer
sparse = transformer | {"weight": heads(window(1)(V.I, V.J))}
near = (torch.arange(N)[:, None] - torch.arange(N)).abs() <= 1
step(
    "8. A pattern of pairs: the sparse Transformer",
    sparse,
    transformer,
    lambda w: layer(w, near),
    x=x,
)

# 9. encoder and decoder: the same rules over three relations
y = torch.randn(4, D, dtype=torch.float64)


def hearing(name, source, target, *where):
    """`target` hears `source`: two rules."""
    weight, out = R[f"{name}_weight"], R[name]
    dot = source(V.J).T @ target(V.I)[W[f"{name}_A"][D, D]]
    return {
        f"{name}_weight": (weight(V.I, V.J) <= (dot[1 / math.sqrt(D)].fixed(), *where)) | [SOFTMAX],
        name: (out(V.I) <= (weight(V.I, V.J), source(V.J)[W[f"{name}_V"][D, D]])) | [F.product],
    }


three = {
    **hearing("within_source", R.x, R.x),
    "memory": R.memory(V.I) <= R.x(V.I) + R.within_source(V.I),
    **hearing("within_target", R.y, R.y, causal()(V.I, V.J)),
    "state": R.state(V.I) <= R.y(V.I) + R.within_target(V.I),
    **hearing("across", R.memory, R.state),
    "h": R.h(V.I) <= R.state(V.I) + R.across(V.I),
}


def heard_by(weight, name, source, target, pairs):
    scores = target @ weight(f"{name}_A").T @ source.T / math.sqrt(D)
    return softmax_over(scores, pairs) @ source @ weight(f"{name}_V").T


def encoder_decoder(weight):
    memory = x + heard_by(weight, "within_source", x, x, every)
    past = torch.ones(4, 4, dtype=torch.bool).tril()
    state = y + heard_by(weight, "within_target", y, y, past)
    return state + heard_by(weight, "across", memory, state, torch.ones(4, N, dtype=torch.bool))


model = compiled(three)
torch.testing.assert_close(model(x=x, y=y), encoder_decoder(model.weight), rtol=1e-10, atol=1e-10)
print("\n9. Encoder and decoder: one rule of attention over three relations")
for name in ("within_source_weight", "within_target_weight", "across_weight"):
    print(f"    {three[name]}")
print("\nEvery step equals the same network in plain torch to 1e-10.")
