"""Models of knowledge graphs equal their equations, in values and gradients, and the reference."""

import pytest
import torch

from edgewise import EdgewiseError, Program, R, V, numbers, rows, zoo

ENTITIES, RELATIONS, SIZE = 9, 3, 6
HEAD, RELATION = torch.tensor([0, 4, 4, 8]), torch.tensor([0, 2, 1, 2])
CANDIDATE = torch.tensor([[1, 1], [0, 8], [3, 4], [8, 2]])
MODELS = {"distmult": zoo.distmult, "complex": zoo.complex, "rotate": zoo.rotate}


def halves(x):
    return torch.complex(x[..., : SIZE // 2], x[..., SIZE // 2 :])


def distmult(weights, tail):
    return ((weights["entity"][HEAD] * weights["relation"][RELATION])[:, None] * tail).sum(-1)


def complex_scores(weights, tail):
    r = torch.complex(weights["relation.real"], weights["relation.imaginary"])[RELATION]
    h = halves(weights["entity"][HEAD])
    return ((h * r)[:, None] * halves(tail).conj()).real.sum(-1)


def rotate(weights, tail):
    turn = torch.exp(1j * weights["relation.angle"][RELATION])
    return 6.0 - ((halves(weights["entity"][HEAD]) * turn)[:, None] - halves(tail)).abs().sum(-1)


PLAIN = {"distmult": distmult, "complex": complex_scores, "rotate": rotate}


def inputs(model, candidate=None):
    found = {"head": numbers(HEAD), "relation": numbers(RELATION)}
    if candidate is None and "candidate" in model.inputs:
        candidate = torch.arange(ENTITIES)
    return found if candidate is None else found | {"candidate": numbers(candidate)}


@pytest.mark.parametrize("name", MODELS)
def test_scores_of_all_entities_and_of_samples_are_the_equation(name):
    config = MODELS[name].Config(ENTITIES, RELATIONS, SIZE)
    every = MODELS[name].program(config).compile(R.score, seed=0, dtype=torch.float64)
    some = MODELS[name].sampled(config).compile(R.score, dtype=torch.float64)
    some.load_state_dict(every.state_dict())
    for model, candidate in ((every, None), (some, CANDIDATE)):
        weights = dict(model.named_parameters())
        table = weights["entity"]
        tail = table[None].expand(4, -1, -1) if candidate is None else table[candidate]
        ours, plain = model(**inputs(model, candidate)), PLAIN[name](weights, tail)
        assert torch.allclose(ours, plain, atol=1e-6 if name == "rotate" else 1e-12)
        for a, b in zip(
            *(torch.autograd.grad(y.sin().sum(), list(weights.values())) for y in (ours, plain)),
            strict=True,
        ):
            assert torch.allclose(a, b, atol=1e-5 if name == "rotate" else 1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_gives_the_same_scores(name):
    config = MODELS[name].Config(ENTITIES, RELATIONS, SIZE)
    program = MODELS[name].sampled(config)
    model = program.compile(R.score, seed=1, dtype=torch.float64)
    facts = [R.head(q)[float(h)] for q, h in enumerate(HEAD.tolist())]
    facts += [R.relation(q)[float(r)] for q, r in enumerate(RELATION.tolist())]
    pairs = [(q, k) for q in range(4) for k in range(2)]
    facts += [R.candidate(q, k)[float(CANDIDATE[q, k])] for q, k in pairs]
    solved = program.solve(facts, weights=dict(model.state_dict()))
    expected = torch.stack(list(solved[R.score(V.Q, V.K)].values()))
    assert torch.allclose(model(**inputs(model, CANDIDATE)).flatten(), expected, atol=1e-9)


EDGES = torch.tensor([[0, 0, 1, 2, 3, 3, 5], [0, 1, 0, 2, 1, 0, 2], [1, 2, 3, 3, 4, 0, 5]])
NONE = EDGES[:, :0]


def path_inputs(hide=NONE):
    start = torch.zeros(2, 6, 1, dtype=torch.float64)
    start[0, 0] = start[1, 3] = 1
    return {"start": start, "relation": numbers(torch.tensor([1, 2])), "hide": rows(hide)}


def adjacency(hide):
    found = torch.zeros(3, 6, 6, dtype=torch.float64)
    found[EDGES[1], EDGES[0], EDGES[2]] = 1
    found[hide[1], hide[0], hide[2]] = 0
    return found


def soft_rules(weights, start, hide, config):
    out = []
    for sample, relation in enumerate((1, 2)):
        at = start[sample].expand(6, config.rank)
        for t in range(1, config.length + 1):
            choice = weights[f"choice.{t}"][:, relation].softmax(0)
            moved = torch.einsum("kji,jc,kc->ic", adjacency(hide), at, choice[:-1])
            at = moved + at * choice[-1]
        out.append((at.sum(1) + 1e-6).log())
    return torch.stack(out)


def nbfnet(weights, start, hide, config):
    out = []
    for sample, relation in enumerate((1, 2)):
        q = weights["query"][relation]
        x = boundary = start[sample] * q
        for t in range(1, config.layers + 1):
            w = weights[f"relation.{t}.weight"] @ q + weights[f"relation.{t}.bias"]
            m = torch.einsum("kji,jc,kc->ic", adjacency(hide), x, w) + boundary
            y = torch.cat([x, m], 1) @ weights[f"layer.{t}.weight"].T + weights[f"layer.{t}.bias"]
            gain, bias = weights[f"norm.{t}.gain"], weights[f"norm.{t}.bias"]
            x = torch.nn.functional.layer_norm(y, y.shape[1:], gain, bias).relu() + x
        h = x @ weights["hidden.weight"].T + weights["hidden.bias"] + weights["hidden.query"] @ q
        out.append((h.relu() @ weights["score.weight"].T + weights["score.bias"])[:, 0])
    return torch.stack(out)


PATHS = {
    "soft_rules": (zoo.soft_rules, zoo.soft_rules.Config(3, 2, 2), soft_rules),
    "nbfnet": (zoo.nbfnet, zoo.nbfnet.Config(3, 4, 2), nbfnet),
}


@pytest.mark.parametrize("hide", [NONE, EDGES[:, [1, 4]], EDGES], ids=["none", "some", "all"])
@pytest.mark.parametrize("name", PATHS)
def test_models_along_paths_are_their_equations(name, hide):
    module, config, plain = PATHS[name]
    model = module.program(config).compile(R.score, seed=0, dtype=torch.float64)
    weights = dict(model.named_parameters())
    found = path_inputs(hide)
    ours = model(model.ground(edge=rows(EDGES)), **found)
    theirs = plain(weights, found["start"], hide, config)
    assert torch.allclose(ours, theirs, atol=1e-9)
    for a, b in zip(
        *(torch.autograd.grad(y.sin().sum(), list(weights.values())) for y in (ours, theirs)),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-9)


def test_chains_are_found_with_their_weights():
    config = zoo.soft_rules.Config(3, 2, 1)
    weights = {f"choice.{t}": torch.zeros(4, 3, 1) for t in (1, 2)}
    weights["choice.1"][2, 1], weights["choice.2"][3, 1] = 9.0, 9.0
    (chain, weight), *_ = zoo.soft_rules.chains(config, weights, 1)
    assert chain == (2,)
    assert weight == pytest.approx(1, abs=1e-2)
    assert sum(w for _, w in zoo.soft_rules.chains(config, weights, 1, most=99)) == pytest.approx(1)


def test_a_chain_reads_as_a_rule_that_runs():
    rule = zoo.soft_rules.as_rule("uncle", [("brother", False), ("son", True)])
    facts = [R.brother("tom", "ann"), R.son("tim", "ann")]
    assert list(Program([rule]).solve(facts)[R.uncle(V.X, V.Y)]) == [R.uncle("tom", "tim")]
    assert Program([zoo.soft_rules.as_rule("same", [])]).text() == "same(X, Y) :- @eq(X, Y).\n"


@pytest.mark.parametrize(
    "make",
    [
        lambda: zoo.distmult.Config(entities=0),
        lambda: zoo.complex.Config(size=7),
        lambda: zoo.rotate.Config(size=True),
        lambda: zoo.nbfnet.Config(layers=0),
        lambda: zoo.soft_rules.Config(rank=-1),
    ],
)
def test_sizes_are_checked(make):
    with pytest.raises(EdgewiseError) as found:
        make()
    assert found.value.code == "bad-config"
    assert found.value.help


@pytest.mark.parametrize("name", [*MODELS, *PATHS])
def test_has_a_paper_and_says_what_it_is_equal_to(name):
    document = getattr(zoo, name).__doc__
    assert "https://arxiv.org/abs/" in document
    assert "Parity: " in document
