"""Rings and bonds as rules: equal to the equations, on rings, chains and single atoms."""

import pytest
import torch

from edgewise import Program, R, V, ragged, rows, zoo

D, B = 4, 2


def both(pairs):
    return torch.tensor([*pairs, *((b, a) for a, b in pairs)]).reshape(-1, 2).T


def cycle(atoms):
    return list(zip(atoms, [*atoms[1:], atoms[0]], strict=True))


GRAPHS = {
    "five and six share a bond": (
        both([*cycle([0, 1, 2, 3, 4]), (1, 5), (5, 6), (6, 7), (7, 8), (8, 0)]),
        9,
    ),
    "six with a tail": (both([*cycle(range(6)), (5, 6)]), 7),
    "a chain": (both([(0, 1), (1, 2)]), 3),
    "one atom": (torch.zeros(2, 0, dtype=torch.int64), 1),
}


def rings(edge, n, size):
    """Every ring from every atom of it, in both directions."""
    near = [[b for a, b in edge.T.tolist() if a == i] for i in range(n)]
    found, paths = [], [[i] for i in range(n)]
    for _ in range(size - 1):
        paths = [[*p, b] for p in paths for b in near[p[-1]] if b not in p]
    for path in paths:
        if path[0] in near[path[-1]]:
            found.append(path)
    return found


def plain(weights, x, edge, bond):
    out = x @ weights["own"].T + weights["out.bias"]
    value = x[edge[1]] @ weights["near.weight"].T + weights["near.bias"] + bond @ weights["bond"].T
    near = torch.zeros_like(out).index_add(0, edge[0], value.tanh())
    out = out + near @ weights["near.out"].T
    for size in zoo.lrnn.RINGS:
        found = rings(edge, len(x), size)
        for i in {path[0] for path in found}:
            own = [path for path in found if path[0] == i]
            values = [
                sum(x[a] @ weights[f"ring_{size}.{min(k, size - k)}"].T for k, a in enumerate(path))
                + weights[f"ring_{size}.bias"]
                for path in own
            ]
            mean = torch.stack(values).tanh().mean(0)
            out = out.index_add(0, torch.tensor([i]), (weights[f"ring_{size}.out"] @ mean)[None])
    return out


@pytest.mark.parametrize("name", GRAPHS)
def test_a_layer_is_the_equations(name):
    edge, n = GRAPHS[name]
    draw = torch.Generator().manual_seed(0)
    x, bond = (torch.randn(k, d, generator=draw).double() for k, d in ((n, D), (edge.shape[1], B)))
    model = zoo.lrnn.program(zoo.lrnn.Config(D, D, B)).compile(R.out, seed=0, dtype=torch.float64)
    ours = model(x=x, edge=rows(edge, bond))
    weights = dict(model.named_parameters())
    theirs = plain(weights, x, edge, bond)
    assert torch.allclose(ours, theirs, atol=1e-9)
    wanted = [torch.autograd.grad(y.sin().sum(), weights["own"])[0] for y in (ours, theirs)]
    assert torch.allclose(*wanted, atol=1e-9)


def test_a_ring_is_found_from_every_atom_in_both_directions():
    edge, _ = GRAPHS["six with a tail"]
    facts = [R.edge(*pair) for pair in edge.T.tolist()]
    found = Program([zoo.lrnn.ring(6)]).solve(facts)
    assert len(found[R.ring_6(*(V[c] for c in "ABCDEF"))]) == 12


def test_a_batch_of_molecules_is_each_alone():
    model = zoo.lrnn.network(zoo.lrnn.Network(inputs=D, hidden=D, task="graph", edges=B)).compile(
        R.logits, seed=0, dtype=torch.float64
    )
    made = [(torch.randn(n, D).double(), rows(e, torch.randn(e.shape[1], B).double()))
            for e, n in GRAPHS.values()]  # fmt: skip
    together = model(x=ragged([x for x, _ in made]), edge=ragged([e for _, e in made]))
    for at, (x, edge) in enumerate(made):
        assert torch.allclose(together.data[at], model(x=x, edge=edge), atol=1e-9)
