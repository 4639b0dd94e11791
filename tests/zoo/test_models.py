"""What every model of the zoo is: few rules, a paper, a program that prints and trains."""

from dataclasses import is_dataclass, replace

import pytest
import torch

from edgewise import C, F, Program, R, V, W, repeat, zoo
from edgewise.language.nodes import Line, Rule, Stack

NAMES = {"C": C, "F": F, "Program": Program, "R": R, "V": V, "W": W, "repeat": repeat}
SIZES = {
    zoo.encoder: {"size": 8, "heads": 2, "hidden": 8, "layers": 2},
    zoo.gat: {"inputs": 8, "outputs": 2, "heads": 2},
    zoo.gatv2: {"inputs": 8, "outputs": 2, "heads": 2},
    zoo.gin: {"inputs": 8, "hidden": 8, "outputs": 8},
    zoo.rgcn: {"inputs": 8, "outputs": 8, "types": ("a", "b")},
}
every_model = pytest.mark.parametrize(
    "model", zoo.MODELS, ids=lambda m: m.__name__.rpartition(".")[2]
)


def small(model):
    config = replace(model.Config(), **SIZES.get(model, {"inputs": 8, "outputs": 8}))
    return model.program(config)


def facts(model, n: int = 4):
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = [R.x(i)[row] for i, row in enumerate(x)]
    if model is zoo.encoder:
        return rows
    pairs = [(0, 1), (1, 0), (2, 2), (3, 0)]
    if model is zoo.rgcn:
        return rows + [R.edge(i, "ab"[j % 2], j) for i, j in pairs]
    return rows + [R.edge(i, j) for i, j in pairs]


def printed_rules(statements) -> int:
    """The rules a reader sees: a stack's once."""
    inside = [s.statements for s in statements if isinstance(s, Stack)]
    here = sum(isinstance(s, Rule | Line) for s in statements)
    return here + sum(map(printed_rules, inside))


@every_model
def test_is_a_page_with_a_paper_a_config_and_few_rules(model):
    assert "https://arxiv.org/abs/" in model.__doc__
    assert "Parity: `torch" in model.__doc__
    assert is_dataclass(model.Config)
    assert model.Config() == model.Config()
    assert hash(model.Config()) == hash(model.Config())
    limit = 25 if model is zoo.encoder else 10
    assert printed_rules(model.program(model.Config()).statements) <= limit


@every_model
def test_prints_as_code_and_as_text_that_build_it(model):
    program = model.program(model.Config())
    assert eval(repr(program), dict(NAMES)) == program
    assert Program.parse(program.text()) == program


@every_model
def test_a_step_along_the_gradient_lowers_the_loss(model):
    program = small(model)
    weights = program.weights(seed=0)

    def loss(current):
        values = program.solve(facts(model), weights=current)[R.out(V.I)].values()
        return torch.stack(list(values)).sub(0.5).square().mean()

    before = loss(weights)
    gradients = torch.autograd.grad(before, list(weights.values()))
    step = {k: w - 0.01 * g for (k, w), g in zip(weights.items(), gradients, strict=True)}
    assert loss(step) < before


@every_model
def test_has_nothing_to_warn_about(model):
    assert small(model).check(facts(model)) == []
