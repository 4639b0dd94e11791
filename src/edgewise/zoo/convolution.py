"""Lightweight and dynamic convolution: a short filter around each token in place of attention.

    lightweight  yₕᵢ = Σₖ softmaxₖ(wₕₖ) vₕ,ᵢ₊ₖ₋ₗ         the same taps everywhere
    dynamic      yₕᵢ = Σₖ softmaxₖ((Wₕ vᵢ)ₖ) vₕ,ᵢ₊ₖ₋ₗ    taps made from the token itself

A head H has `taps` weights; l = taps - 1 for a causal decoder and (taps - 1) / 2 otherwise. Taps
beyond the ends count in the softmax and read 0, as in the authors' code.

Paper: https://arxiv.org/abs/1901.10430. Parity: `torch.nn.functional`, by the equations.

>>> import torch
>>> from edgewise import R, zoo
>>> config = zoo.convolution.Config(size=16, heads=2, taps=3, hidden=32, layers=2)
>>> model = zoo.convolution.program(config).compile(R.out, seed=0)
>>> model(x=torch.randn(9, 16)).shape
torch.Size([9, 16])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W, repeat
from edgewise.language.nodes import Atom, Rule
from edgewise.zoo.parts import Statements, feed_forward, head_size, layer_norm, linear, residual


@dataclass(frozen=True)
class Config:
    size: int = 512
    heads: int = 8
    taps: int = 7
    hidden: int = 2048
    layers: int = 6
    dynamic: bool = False
    causal: bool = False
    dropout: float = 0.1

    @property
    def left(self) -> int:
        """How many taps lie before the token."""
        return self.taps - 1 if self.causal else (self.taps - 1) // 2


def weights(config: Config) -> Rule:
    """The taps of every head, by softmax; a dynamic model has its own at every token."""
    softmax = F.softmax_agg(agg_terms=[V.K])
    if config.dynamic:
        made = R.v(V.I)[W["tap.weight"](V.H, V.K)[1, config.size]]
        return (R.tap(V.H, V.I, V.K) <= made) | [softmax]
    return (R.tap(V.H, V.K) <= W.tap(V.H, V.K)[1,]) | [softmax]


def layer(x: Atom, config: Config) -> Statements:
    d, hidden, p = config.size, config.hidden, config.dropout
    part, left = head_size(d, config.heads), config.left
    tap = R.tap(V.H, V.I, V.K) if config.dynamic else R.tap(V.H, V.K)
    from_left = R.special.add(V.J, left, V.S), R.special.add(V.I, V.K, V.S)  # j = i + k - left
    return [
        *layer_norm(x, R.norm1, d),
        *linear(R.norm1, R.v, d, d),
        R.part(V.H, V.I) <= R.v(V.I)[W["part.weight"](V.H)[part, d]],
        weights(config),
        (R.convolved(V.H, V.I) <= (tap, R.part(V.H, V.J), R.hidden[x.relation](V.I), *from_left))
        | [F.product],
        (R.mixed(V.I) <= R.convolved(V.H, V.I)) | [F.concat_agg],
        *residual(x, R.mixed, R.added, d, d, p),
        *layer_norm(R.added, R.norm2, d),
        *feed_forward(R.norm2, R.mlp, d, hidden, p=p),
        *residual(R.added, R.mlp, R.out, hidden, d, p),
    ]


def program(config: Config) -> Program:
    """Reads `x(i)` and derives `out(i)`."""
    stack = repeat(lambda x: layer(x, config), config.layers)(R.x)
    domains = {V.H: config.heads, V.K: config.taps}
    return Program([stack, *layer_norm(stack.out, R.out, config.size)], domains=domains)
