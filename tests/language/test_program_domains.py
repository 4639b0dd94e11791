"""Programs with other domains of one variable are put together: 8 heads, then 1."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W


def gat(name: str, source, size: int, heads: int) -> Program:
    """One layer of graph attention; the heads are summed."""
    softmax = F.softmax_agg(agg_terms=[V.J])
    z, a, out = (R[f"{name}.{part}"] for part in "zao")
    return Program(
        [
            z(V.H, V.I) <= source(V.I)[W[f"{name}.w"](V.H)[4, size]],
            (a(V.H, V.I, V.J) <= (z(V.H, V.J)[W[f"{name}.l"](V.H)[1, 4]], R._e(V.I, V.J)))
            | [F.leaky_relu(0.2), softmax],
            (out(V.I) <= (a(V.H, V.I, V.J), z(V.H, V.J))) | [F.product],
        ],
        domains={V.H: heads},
    )


def by_hand(model, name, x, mask):
    z = torch.einsum("hoi,ni->hno", model.weight(f"{name}.w"), x)
    scores = torch.einsum("hqo,hno->hn", model.weight(f"{name}.l"), z)
    scores = torch.nn.functional.leaky_relu(scores, 0.2)[:, None, :]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return (weights @ z).sum(0)


@pytest.mark.parametrize("joined", [lambda a, b: a + b, lambda a, b: Program([a, [b]])])
def test_layers_with_other_numbers_of_heads_stack(joined):
    program = joined(gat("one", R.x, 3, 8), gat("two", R["one.o"], 4, 1))
    assert dict(program.domains) == {"H": 8, "H_2": 1}
    model = program.compile(R["two.o"], seed=0)
    assert model.weight("one.w").shape[0] == 8
    assert model.weight("two.w").shape[0] == 1
    torch.manual_seed(0)
    x, mask = torch.randn(6, 3), torch.rand(6, 6) < 0.5
    mask |= torch.eye(6, dtype=torch.bool)
    found = model(x=x, e=mask.nonzero().T).data
    expected = by_hand(model, "two", by_hand(model, "one", x, mask), mask)
    torch.testing.assert_close(found, expected)
    assert Program.parse(program.text()) == program


def test_three_numbers_of_heads_and_equal_ones():
    layers = [gat(str(at), R.x, 4, heads) for at, heads in enumerate((8, 1, 8, 4, 1))]
    program = Program(layers)
    assert dict(program.domains) == {"H": 8, "H_2": 1, "H_3": 4}
    assert program.check() == []


def test_a_family_has_one_domain():
    three = Program([R.a(V.H) <= R.x[W.w(V.H)[2.0]]], domains={V.H: 3})
    two = Program([R.b(V.H) <= R.x[W.w(V.H)[2.0]]], domains={V.H: 2})
    with pytest.raises(EdgewiseError):
        (three + two).check()


def test_other_defaults_must_agree():
    with pytest.raises(EdgewiseError, match="disagree"):
        Program([R.h <= R.a], rounds=2) + Program([R.g <= R.a], rounds=3)
