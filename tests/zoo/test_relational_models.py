"""Tree-LSTM and collective classification equal their equations, values and gradients."""

import pytest
import torch

from edgewise import R, V, data, numbers, ragged, rows, zoo
from edgewise.data import trees

D = 4
HEADS = [[-1], [1, -1], [1, 4, 1, 4, -1, 6, 4]]  # of each word; the root has none


def tree_lstm(w, tokens, heads):
    """Word by word, each after its dependents."""
    x, found = w["word"][tokens], {}

    def gate(name, i, state):
        return (
            x[i] @ w[f"h.{name}.in.weight"].T
            + w[f"h.{name}.in.bias"]
            + state @ w[f"h.{name}.back"].T
        )

    def state(i):
        if i not in found:
            children = [state(c) for c, head in enumerate(heads) if head == i]
            total = sum((h for h, _ in children), torch.zeros(D, dtype=x.dtype))
            memory = gate("input", i, total).sigmoid() * gate("update", i, total).tanh()
            for h, c in children:
                memory = memory + gate("forget", i, h).sigmoid() * c
            found[i] = gate("output", i, total).sigmoid() * memory.tanh(), memory
        return found[i]

    return state(heads.index(-1))[0] @ w["logits.weight"].T + w["logits.bias"]


def sentence(heads):
    arcs = [(c, i) for c, i in enumerate(heads) if i >= 0]
    return {
        "token": numbers(torch.arange(len(heads)) % 5),
        "arc": rows(torch.tensor(arcs, dtype=torch.int64).reshape(-1, 2).T),
        "root": rows(torch.tensor([[heads.index(-1)]])),
    }


@pytest.mark.parametrize("heads", HEADS, ids=len)
def test_a_tree_is_its_equations(heads):
    program = zoo.tree_lstm.program(zoo.tree_lstm.Config(5, D, 2))
    model = program.compile(R.logits, seed=0, dtype=torch.float64)
    weights = dict(model.named_parameters())
    ours = model(**sentence(heads))
    theirs = tree_lstm(weights, torch.arange(len(heads)) % 5, heads)
    assert torch.allclose(ours, theirs, atol=1e-9)
    used = [n for n in weights if len(heads) > 1 or ("back" not in n and "forget" not in n)]
    for a, b in zip(
        *(torch.autograd.grad(y.sin().sum(), [weights[n] for n in used]) for y in (ours, theirs)),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-9)


TEXT = """\
1\tdogs\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_
2\tbark\t_\tVERB\t_\t_\t0\troot\t_\t_

1\tstop\t_\tVERB\t_\t_\t0\troot\t_\t_
"""


def test_sentences_of_a_treebank_are_read(tmp_path):
    (tmp_path / "some.conllu").write_text(TEXT)
    found = data.conllu(tmp_path / "some.conllu")
    read = trees.sentences(tmp_path / "some.conllu")
    words = {name: at for at, name in enumerate(found.names["word"])}
    model = zoo.tree_lstm.program(zoo.tree_lstm.Config(3, D, 2)).compile(R.logits, seed=0)
    tokens = [torch.tensor([float(words[w]) for w in one.words])[:, None] for one in read]
    roots = [rows(torch.tensor([[one.heads.index(0)]])) for one in read]
    together = model(token=ragged(tokens), arc=found.inputs["arc"], root=ragged(roots))
    assert together.data.shape == (2, 2)


def collective(w, x, adjacency, observed, known, rounds):
    mean = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)
    own = x @ w["own.weight"].T + w["own.bias"]
    label, there = observed * known[:, None], known
    for _ in range(rounds):
        counted = adjacency * there[None].to(adjacency)
        mean = counted / counted.sum(1, keepdim=True).clamp(min=1)
        belief = (own + (mean @ label) @ w["near"].T).softmax(1)
        label = torch.where(known[:, None], observed, belief)
        there = torch.ones_like(known)
    return belief.log()


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_rounds_are_the_equations_and_the_reference(rounds):
    config = zoo.collective.Config(3, 2, rounds)
    program = zoo.collective.program(config)
    model = program.compile(R.logits, seed=0, dtype=torch.float64)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, generator=draw).double()
    edge = torch.tensor([[0, 1, 1, 2, 3, 2, 4], [1, 0, 2, 1, 2, 3, 0]])
    known = torch.tensor([True, False, False, True, False, False])
    classes = torch.eye(2).double()[[0, 0, 0, 1, 0, 0]]
    observed = rows(known.nonzero().T, classes[known])
    ours = model(x=x, edge=rows(edge), observed=observed)
    adjacency = torch.zeros(6, 6).double()
    adjacency[edge[0], edge[1]] = 1
    weights = dict(model.named_parameters())
    theirs = collective(weights, x, adjacency, classes, known, rounds)
    assert torch.allclose(ours, theirs, atol=1e-9)
    facts = [R.x(i)[row] for i, row in enumerate(x)]
    facts += [R.edge(*pair) for pair in edge.T.tolist()]
    facts += [R.observed(i)[classes[i]] for i in known.nonzero()[:, 0].tolist()]
    solved = program.solve(facts, weights=weights)[R.logits(V.I)]
    assert torch.allclose(torch.stack(list(solved.values())), theirs, atol=1e-9)
    grads = [torch.autograd.grad(y.sin().sum(), list(weights.values())) for y in (ours, theirs)]
    assert all(torch.allclose(a, b, atol=1e-9) for a, b in zip(*grads, strict=True))
