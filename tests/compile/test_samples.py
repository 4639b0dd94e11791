"""The samples of a batch one by one, all padded alike: what the batch gives, value by value."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W, ragged, rows

X, Y, K = V.X, V.Y, V.K


def graph(n, edges, seed):
    made = torch.Generator().manual_seed(seed)
    pairs = torch.randint(0, max(n, 1), (2, edges if n else 0), generator=made)
    x = torch.randn(n, 3, generator=made, dtype=torch.float64)
    kinds = torch.randint(0, 2, (n,), generator=made).tolist()
    facts = [R.x(i)[row] for i, row in enumerate(x)]
    facts += [R.kind(i, k) for i, k in enumerate(kinds)]
    return facts + [R.edge(a, b) for a, b in {tuple(p) for p in pairs.T.tolist()}]


SAMPLES = [graph(*size) for size in ((3, 4, 0), (7, 12, 1), (1, 0, 2), (5, 9, 3), (2, 4, 4))]


def of(program):
    """The samples, with the relations that a program has."""
    known = {
        atom.relation for rule in program.rules for atom in rule.body if hasattr(atom, "relation")
    }
    return [[fact for fact in sample if fact.relation in known] for sample in SAMPLES]


def network(*rules, **options):
    return Program([R.h(X) <= R.x(X)[4, 3], *rules, R.out <= R.g(X)[1, 4]], **options)


PROGRAMS = {
    **{
        name: network(
            (R.g(X)[4, 4] <= (R.h(Y)[4, 4], R._edge(Y, X))) | [F.tanh, getattr(F, name)],
            R.g(X) <= R.h(X)[4, 4],
            R.g / 1 | [F.sigmoid],
        )
        for name in ("sum_agg", "avg_agg", "max_agg", "min_agg", "lse_agg", "std_agg", "median_agg")
    },
    "a softmax over neighbours": network(
        (R.w(X, Y) <= (R.h(X).T, R.h(Y), R._edge(Y, X)))
        | [F.product, F.softmax_agg(agg_terms=[Y])],
        (R.g(X) <= (R.w(X, Y), R.h(Y))) | [F.product],
        R.g(X) <= R.h(X),
    ),
    "a maximum of two rules": network(
        R.g(X) <= (R.h(Y), R._edge(Y, X)), R.g(X) <= R.h(X)[4, 4], R.g / 1 | [F.max]
    ),
    "a weight for each kind": network(
        R.g(X) <= (R.h(X)[W.f(K)[4, 4]], R._kind(X, K)), domains={K: 2}
    ),
    "what all samples share": network(
        (R.g(X) <= (R.h(X), R.kind(X, K), R.scale(K))) | [F.product],
        R.scale(0)[0.5],
        R.scale(1)[2.0].fixed(),
    ),
    "numbers": network(
        (R.g(X) <= (R.h(X), R.special.add_eval(X, 1))) | [F.product],
    ),
}


def model_of(name):
    return PROGRAMS[name].compile(R.out, seed=0, dtype=torch.float64)


def gradients(value, model):
    found = list(model.parameters())
    return torch.autograd.grad(value, found, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_sample_is_itself_whatever_is_added(name):
    model = model_of(name)
    samples = model.samples(model.ground(facts=ragged(of(model.program))))
    for _ in range(3):  # also when it is written down
        for facts, sample in zip(of(model.program), samples, strict=True):
            alone, found = model(model.ground(facts=facts)), model(sample)
            torch.testing.assert_close(found, alone)
            torch.testing.assert_close(gradients(found, model), gradients(alone, model))


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"median_agg"}))
def test_all_samples_take_the_same_operations(name):
    model = model_of(name)
    weights = [model.weight(n) for n in model._paths]
    bodies = set()
    for sample in model.samples(model.ground(facts=ragged(of(model.program)))):
        (step,) = sample.built.values()

        plan = step.plan((), weights, tuple(model._paths), model._one, True, False)
        bodies.add((plan.text, tuple(c.shape for c in plan.tensors)))
    assert len(bodies) == 1


def test_outputs_of_different_lengths_are_rows():
    model = Program([R.h(X) <= (R.x(Y)[2, 3], R._edge(Y, X))]).compile(R.h, dtype=torch.float64)
    data = model.ground(facts=ragged(of(model.program)))
    whole = dict(model.rows(data))
    for number, sample in enumerate(model.samples(data)):
        for atom, value in model.rows(sample).items():
            torch.testing.assert_close(value, whole[R.h(number, *atom.terms)])


def test_dropout_and_modes():
    program = Program([(R.out <= R.x(X)[1, 3]) | [F.dropout(p=0.5)]])
    model = program.compile(R.out, dtype=torch.float64)
    sample = model.samples(model.ground(facts=ragged(of(model.program))))[1]
    assert len({model(sample).item() for _ in range(8)}) > 1
    model.eval()
    assert len({model(sample).item() for _ in range(4)}) == 1


@pytest.mark.parametrize(
    ("program", "inputs", "words"),
    [
        (Program([R.h <= R.x(X)]), {"x": torch.ones(3)}, "no ragged batch"),
        (
            Program([R.h(X) <= (R.h(Y), R._e(Y, X)), R.h(X) <= R.x(X)]),
            {"x": ragged([torch.ones(3)]), "e": ragged([torch.tensor([[0, 1], [1, 2]])])},
            "recursive",
        ),
    ],
)
def test_what_cannot_be_padded_alike_says_why(program, inputs, words):
    model = program.compile(R.h)
    with pytest.raises(EdgewiseError, match=words) as found:
        model.samples(model.ground(**inputs))
    assert found.value.code == "not-padded"


def test_a_sample_of_another_model_or_precision():
    model = model_of("sum_agg")
    (sample, *_) = model.samples(model.ground(facts=ragged(of(model.program))))
    with pytest.raises(EdgewiseError, match="foreign-data"):
        model_of("sum_agg")(sample)
    with pytest.raises(EdgewiseError, match="another precision"):
        model.float()(sample)


def test_why_is_asked_of_the_batch():
    model = model_of("sum_agg")
    data = model.ground(facts=ragged(of(model.program)))
    with pytest.raises(EdgewiseError, match="unknown-sample"):
        model.why(R.out, model.samples(data)[0])
    assert model.why(R.out, data, sample=0)


def test_rows_and_values_as_samples():
    model = Program([R.out <= R.x(X)[1, 3]]).compile(R.out)
    given = [rows(torch.arange(n).unsqueeze(0), torch.randn(n, 3)) for n in (2, 4)]
    for one, sample in zip(given, model.samples(model.ground(x=ragged(given))), strict=True):
        torch.testing.assert_close(model(sample), model(model.ground(x=one)))
