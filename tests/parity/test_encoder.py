"""The encoder as rules against `torch.nn.TransformerEncoder`."""

import re

import pytest
import torch
from torch import Tensor, nn

from edgewise import F, Program, R, V
from edgewise.language.nodes import Rule, Stack
from edgewise.zoo import encoder, parts

TOLERANCE = {"atol": 1e-8, "rtol": 1e-8}


def torch_encoder(config: encoder.Config, activation: str) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        config.size,
        config.heads,
        config.hidden,
        dropout=config.dropout,
        activation=activation,
        norm_first=True,
        batch_first=True,
        dtype=torch.float64,
    )
    norm = nn.LayerNorm(config.size, dtype=torch.float64)
    model = nn.TransformerEncoder(layer, config.layers, norm, enable_nested_tensor=False).eval()
    for parameter in model.parameters():  # copies of one layer start equal, and biases at 0
        nn.init.normal_(parameter, std=0.4)
    return model


def named(tensors: dict[str, Tensor], config: encoder.Config) -> dict[str, Tensor]:
    """Torch's parameters, or their gradients, under our names."""
    heads, d, size = config.heads, config.size // config.heads, config.size
    ours = {"out.gain": tensors["norm.weight"], "out.bias": tensors["norm.bias"]}
    for i in range(config.layers):
        theirs = {k.removeprefix(f"layers.{i}."): v for k, v in tensors.items()}
        matrices = theirs["self_attn.in_proj_weight"].reshape(3, heads, d, size)
        biases = theirs["self_attn.in_proj_bias"].reshape(3, heads, d)
        made = {f"{x}.weight": matrix for x, matrix in zip("qkv", matrices, strict=True)}
        made |= {f"{x}.bias": bias for x, bias in zip("qkv", biases, strict=True)}
        rows = {"attended": "self_attn.out_proj", "mlp": "linear1", "out": "linear2"}
        for our, their in rows.items():
            made |= {f"{our}.{part}": theirs[f"{their}.{part}"] for part in ("weight", "bias")}
        for norm in ("norm1", "norm2"):
            made |= {
                f"{norm}.gain": theirs[f"{norm}.weight"],
                f"{norm}.bias": theirs[norm + ".bias"],
            }
        ours |= {f"layer.{i}.{name}": tensor for name, tensor in made.items()}
    return ours


def solved(program: Program, x: Tensor, weights: dict[str, Tensor], **options: bool) -> Tensor:
    facts = [R.x(i)[row] for i, row in enumerate(x)]
    return torch.stack([*program.solve(facts, weights=weights, **options)[R.out(V.I)].values()])


@pytest.mark.parametrize(
    ("n", "layers", "size", "heads", "activation"),
    [(1, 2, 8, 2, "relu"), (5, 2, 8, 4, "gelu"), (7, 3, 12, 3, "relu"), (5, 2, 16, 2, "gelu")],
)
def test_the_encoder_is_torch_s(n, layers, size, heads, activation):
    torch.manual_seed(n + size)
    function = {"relu": F.relu, "gelu": F.gelu}[activation]
    config = encoder.Config(size, heads, 2 * size, layers, function, dropout=0.1)
    model = torch_encoder(config, activation)
    x = torch.randn(n, size, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(n, size, dtype=torch.float64)
    theirs = model(x[None])[0]
    (theirs * direction).sum().backward()
    their_gradients = {name: p.grad for name, p in model.named_parameters()}

    weights = named({k: p.detach() for k, p in model.named_parameters()}, config)
    weights = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
    program = encoder.program(config)
    assert set(weights) == set(program.weights())
    x_ours = x.detach().clone().requires_grad_()
    ours = solved(program, x_ours, weights)
    (ours * direction).sum().backward()

    torch.testing.assert_close(ours, theirs, **TOLERANCE)
    torch.testing.assert_close(x_ours.grad, x.grad, **TOLERANCE)
    for name, expected in named(their_gradients, config).items():
        torch.testing.assert_close(weights[name].grad, expected, **TOLERANCE)


def test_a_condition_makes_it_causal():
    torch.manual_seed(0)
    config = encoder.Config(8, 2, 8, 2, graph="causal()")
    model = torch_encoder(config, "relu")
    x = torch.randn(5, 8, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    weights = named({k: p.detach() for k, p in model.named_parameters()}, config)
    ours = solved(encoder.program(config), x, weights)
    theirs = model(x[None], mask=mask, is_causal=True)[0]
    torch.testing.assert_close(ours, theirs, **TOLERANCE)


def test_dropout_is_active_in_training_only():
    program = encoder.program(encoder.Config(8, 2, 16, 2, dropout=0.5))
    weights = program.weights(seed=0)
    x = torch.randn(3, 8, dtype=torch.float64)
    still, again = (solved(program, x, weights) for _ in range(2))
    first, second = (solved(program, x, weights, training=True) for _ in range(2))
    assert torch.equal(still, again)
    assert not torch.allclose(first, still)
    assert not torch.allclose(first, second)


def test_twelve_layers_are_one_block_of_at_most_25_rules():
    program = encoder.program(encoder.Config())
    stack, *rest = program.statements
    assert isinstance(stack, Stack)
    assert stack.count == 12
    printed = [s for s in (*stack.statements, *rest) if isinstance(s, Rule)]
    assert len(printed) == repr(program).count(" <= ") == 12
    assert len(re.findall(r"\brepeat\(lambda x: \[", repr(program))) == 1
    assert "], 12)(R.x)" in repr(program)
    assert program.text().count(":-") == 12
    assert len(program.rules) == 11 * 12 + 1


def test_every_layer_has_its_own_weights():
    names = set(encoder.program(encoder.Config(8, 2, 8, layers=12)).weights())
    assert {f"layer.{i}.{w}" for i in range(12) for w in ("q.weight", "norm1.gain")} <= names
    assert len(names) == 12 * 16 + 2


def test_embedding_dropout_and_readout_are_blocks():
    program = Program(
        [
            parts.embedding(R.token, R.x, 4),
            parts.dropout(R.x, R.kept, 0.5),
            parts.readout(R.kept, R.y, 4, 2),
        ],
        domains={V.T: ["a", "b", "c"]},
    )
    weights = program.weights(seed=0)
    solution = program.solve([R.token(0, "b"), R.token(1, "a"), R.token(2, "b")], weights=weights)
    rows = weights["x.weight"][[1, 0, 1]]
    expected = weights["y.weight"] @ rows.mean(0) + weights["y.bias"]
    torch.testing.assert_close(solution[R.y], expected)
