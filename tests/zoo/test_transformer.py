"""The encoder–decoder as rules against `torch.nn`, with each kind of positions and norms."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from edgewise import EdgewiseError, F, R, numbers
from edgewise.reference.arithmetic import bucket
from edgewise.zoo import transformer
from edgewise.zoo.layers import BUCKETS, FAR_BUCKET

NORMS = ("post", "pre")
POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "relative")

few = settings(max_examples=4, phases=[Phase.explicit, Phase.generate])


class Attention(nn.Module):
    """Multi-head attention written out, for positions that torch's own does not know."""

    def __init__(self, config: transformer.Config, table: nn.Module | None, causal: bool) -> None:
        super().__init__()
        d = config.size
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.config, self.table, self.causal = config, table, causal

    def forward(self, x: Tensor, to: Tensor, mask: Tensor | None) -> Tensor:
        heads, d = self.config.heads, self.config.size // self.config.heads
        q, k, v = (
            f(y).unflatten(-1, (heads, d)).transpose(1, 2)
            for f, y in ((self.q, x), (self.k, to), (self.v, to))
        )
        if self.config.positions == "rotary" and self.table is not None:
            q, k = turned(q), turned(k)
        scores = q @ k.mT / math.sqrt(d)
        if self.table is not None:
            scores = scores + self.table(x.shape[1])
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None] == 0, -torch.inf)
        if self.causal:
            ahead = torch.ones(scores.shape[-2:]).triu(1).bool()
            scores = scores.masked_fill(ahead, -torch.inf)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def turned(x: Tensor) -> Tensor:
    """Numbers c and c + d/2 as a complex number, times e^{i · position · speed}."""
    half = x.shape[-1] // 2
    speed = 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * speed
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([z.real, z.imag], -1)


class Scores(nn.Module):
    """What positions add to scores: nothing, −slope · distance, or a learnable number."""

    def __init__(self, config: transformer.Config, both: bool) -> None:
        super().__init__()
        self.config, self.both = config, both
        self.relative = nn.Parameter(torch.empty(BUCKETS, config.heads))

    def forward(self, n: int) -> Tensor:
        heads = self.config.heads
        if self.config.positions == "alibi":
            distance = (torch.arange(n)[:, None] - torch.arange(n)).abs().double()
            slope = 2.0 ** (-8 * (torch.arange(heads).double() + 1) / heads)
            return -slope[:, None, None] * distance
        if self.config.positions == "relative":
            at = [
                [bucket(j - i, BUCKETS, FAR_BUCKET, both=self.both)
                 for j in range(n)] for i in range(n)
            ]  # fmt: skip
            return self.relative[torch.tensor(at)].permute(2, 0, 1)
        return torch.zeros(())


class Layer(nn.Module):
    def __init__(self, config: transformer.Config, table: nn.Module, decodes: bool) -> None:
        super().__init__()
        d, self.config, self.decodes = config.size, config, decodes
        self.attention = Attention(config, table, decodes)
        self.cross = Attention(config, None, False) if decodes else None
        self.up, self.down = nn.Linear(d, config.hidden), nn.Linear(config.hidden, d)
        self.norms = nn.ModuleList(nn.LayerNorm(d, config.eps) for _ in range(2 + decodes))

    def forward(self, x: Tensor, memory: Tensor | None, mask: Tensor) -> Tensor:
        def sublayer(norm, x, f):
            return x + f(norm(x)) if self.config.norm == "pre" else norm(x + f(x))

        own = None if self.decodes else mask
        x = sublayer(self.norms[0], x, lambda y: self.attention(y, y, own))
        if self.cross is not None:
            x = sublayer(self.norms[1], x, lambda y: self.cross(y, memory, mask))
        return sublayer(self.norms[-1], x, lambda y: self.down(self.up(y).relu()))


class Written(nn.Module):
    """The paper's model."""

    def __init__(self, config: transformer.Config) -> None:
        super().__init__()
        self.config = config
        self.word = nn.Parameter(torch.empty(config.vocabulary, config.size))
        self.position = nn.Parameter(torch.empty(config.length, config.size))
        self.tables = nn.ModuleList(Scores(config, both) for both in (True, False))
        self.encoder = nn.ModuleList(
            Layer(config, self.tables[0], False) for _ in range(config.layers)
        )
        self.decoder = nn.ModuleList(
            Layer(config, self.tables[1], True) for _ in range(config.decoder_layers)
        )
        self.ends = nn.ModuleList(nn.LayerNorm(config.size, config.eps) for _ in range(2))
        self.out = nn.Linear(config.size, config.vocabulary)

    def embedded(self, token: Tensor) -> Tensor:
        d, n = self.config.size, token.shape[1]
        x = self.word[token] * math.sqrt(d)
        if self.config.positions == "learned":
            x = x + self.position[:n]
        if self.config.positions == "sinusoidal":
            place, c = torch.arange(n).double()[:, None], torch.arange(0, d, 2).double()
            angle = place / 10_000 ** (c / d)
            x = x + torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
        return x

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        x, y = self.embedded(source), self.embedded(target)
        for layer in self.encoder:
            x = layer(x, None, mask)
        x = self.ends[0](x) if self.config.norm == "pre" else x
        for layer in self.decoder:
            y = layer(y, x, mask)
        return self.out(self.ends[1](y) if self.config.norm == "pre" else y)


def named(model: Written) -> dict[str, Tensor]:
    """Their parameters under our names."""
    config, heads = model.config, model.config.heads
    found = {"word": model.word, "logits.weight": model.out.weight, "logits.bias": model.out.bias}
    if config.positions == "learned":
        found["position"] = model.position
    for k, side in enumerate(("encoder", "decoder")):
        if config.positions == "relative":
            found[f"{side}.relative"] = model.tables[k].relative.unsqueeze(-1)
        if config.norm == "pre":
            found |= _norm(f"{side}.out", model.ends[k])
        for i, layer in enumerate(getattr(model, side)):
            found |= {f"{side}.layer.{i}.{n}": t for n, t in _layer(layer, heads, config).items()}
    return found


def _layer(layer: Layer, heads: int, config: transformer.Config) -> dict[str, Tensor]:
    pre = config.norm == "pre"
    found = {"mlp.weight": layer.up.weight, "mlp.bias": layer.up.bias}
    blocks = [("self", "attended", layer.attention, layer.norms[0])]
    if layer.cross is not None:
        blocks.append(("cross", "crossed", layer.cross, layer.norms[1]))
    for name, out, block, norm in blocks:
        for x in "qkv":
            part = getattr(block, x)
            found[f"{name}.{x}.weight"] = part.weight.unflatten(0, (heads, -1))
            found[f"{name}.{x}.bias"] = part.bias.unflatten(0, (heads, -1))
        end = out if pre else f"{out}_sum"
        found |= {f"{end}.weight": block.o.weight, f"{end}.bias": block.o.bias}
        found |= _norm(f"{name}_norm" if pre else out, norm)
    end = "out" if pre else "out_sum"
    found |= {f"{end}.weight": layer.down.weight, f"{end}.bias": layer.down.bias}
    return found | _norm("mlp_norm" if pre else "out", layer.norms[-1])


def _norm(name: str, norm: nn.LayerNorm) -> dict[str, Tensor]:
    return {f"{name}.gain": norm.weight, f"{name}.bias": norm.bias}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("positions", POSITIONS)
@few
@given(st.integers(1, 3), st.sampled_from([2, 4]), st.integers(1, 7), st.integers(1, 6))
def test_the_transformer_is_the_paper_s(positions, norm, heads, d, n, m):
    torch.manual_seed(n)
    config = transformer.Config(
        11, heads * d, heads, 5, 2, 1, 9, positions=positions, norm=norm, dropout=0.0
    )  # fmt: skip
    theirs = Written(config).double()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.4)
    source, target = torch.randint(0, 11, (2, n)), torch.randint(0, 11, (2, m))
    mask = (torch.arange(n) < torch.tensor([[n], [max(n - 2, 1)]])).double()
    model = transformer.program(config).compile(R.logits, seed=0, dtype=torch.float64)
    weights = named(theirs)
    assert set(weights) == set(transformer.program(config).weights())
    with torch.no_grad():
        for name, value in weights.items():
            model.weight(name).copy_(value)
    inputs = {"source": numbers(source), "mask": mask[..., None], "target": numbers(target)}
    ours, expected = model(**inputs), theirs(source, mask, target)
    torch.testing.assert_close(ours, expected, atol=1e-10, rtol=1e-9)
    assert not model.explain(json=True, stage="passes", **inputs)["passes"]["not fused"]
    direction = torch.randn_like(expected)
    (expected * direction).sum().backward()
    (ours * direction).sum().backward()
    for parameter in theirs.parameters():  # their gradients under our names
        parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    for name, gradient in named(theirs).items():
        found = model.weight(name).grad
        torch.testing.assert_close(found, gradient, atol=1e-9, rtol=1e-8, msg=name)


@pytest.mark.parametrize("norm", NORMS)
def test_written_out_it_is_torch_s(norm):
    """The reference above against `torch.nn.Transformer`'s own layers."""
    torch.manual_seed(0)
    config = transformer.Config(11, 6, 2, 5, 1, 1, 9, positions="rotary", norm=norm, dropout=0.0)
    layer = Layer(config, None, True).double()
    own = nn.TransformerDecoderLayer(
        6, 2, 5, 0.0, norm_first=norm == "pre", batch_first=True, dtype=torch.float64
    )
    with torch.no_grad():
        for mine, its in ((layer.attention, own.self_attn), (layer.cross, own.multihead_attn)):
            its.in_proj_weight.copy_(torch.cat([mine.q.weight, mine.k.weight, mine.v.weight]))
            its.in_proj_bias.copy_(torch.cat([mine.q.bias, mine.k.bias, mine.v.bias]))
            its.out_proj.load_state_dict(mine.o.state_dict())
        own.linear1.load_state_dict(layer.up.state_dict())
        own.linear2.load_state_dict(layer.down.state_dict())
    x, memory = torch.randn(2, 5, 6).double(), torch.randn(2, 4, 6).double()
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    ahead = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    its = own(x, memory, tgt_mask=ahead, memory_key_padding_mask=mask == 0)
    torch.testing.assert_close(layer(x, memory, mask), its)


@pytest.mark.parametrize("wrong", [{"positions": "rotatory"}, {"norm": "both"}])
def test_a_way_that_there_is_not_is_refused(wrong):
    with pytest.raises(EdgewiseError) as caught:
        transformer.Config(**wrong)
    assert caught.value.code == "bad-config"


def test_activation_is_a_function_of_the_language():
    config = transformer.Config(11, 4, 2, 4, 1, 1, activation=F.silu)
    assert "silu" in transformer.program(config).text()


def test_tied_logits_are_products_with_the_table_of_words():
    config = transformer.Config(
        vocabulary=11, size=8, heads=2, hidden=8, layers=1, decoder_layers=1, length=8, dropout=0.0
    )
    tied = replace(config, tied=True)
    model = transformer.program(tied).compile(R.logits, seed=0, dtype=torch.float64)
    apart = transformer.program(config).compile(R.logits, seed=0, dtype=torch.float64)
    weights = dict(model.state_dict())
    assert "logits.weight" not in weights
    apart.load_state_dict({**weights, "logits.weight": weights["word"]})
    token = numbers(torch.randint(0, 11, (2, 5)))
    given = {"source": token, "target": token, "mask": torch.ones(2, 5, 1).double()}
    found, expected = model(**given), apart(**given)
    torch.testing.assert_close(found, expected)
    ours, theirs = found.square().sum(), expected.square().sum()
    both = torch.autograd.grad(theirs, [apart.weight("word"), apart.weight("logits.weight")])
    torch.testing.assert_close(torch.autograd.grad(ours, model.weight("word"))[0], sum(both))
