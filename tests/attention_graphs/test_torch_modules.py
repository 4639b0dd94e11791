"""The attention of any torch module: the weights are those that its own calls compute."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import edgewise
from edgewise import attention_graph, view
from edgewise.attention_graphs.errors import NoAttention, NoSuchHead, NoTokens
from edgewise.graphs import causal, full, global_tokens, per_head, per_sample, window
from edgewise.scores import relative, softcap

D, HEADS = 8, 4


class Layer(nn.Module):
    """Self-attention by any function of q, k and v (batch, heads, n, d)."""

    def __init__(self, attend):
        super().__init__()
        self.qkv, self.attend = nn.Linear(D, 3 * D, dtype=torch.float64), attend

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return x + self.attend(q, k, v).transpose(1, 2).flatten(2)


def values(n, batch=2):
    return torch.randn(batch, n, D, dtype=torch.float64)


def weights_of(layer, x, **options):
    """(heads, n, n) as the output tells them: with the unit vectors as values."""
    q, k, _ = layer.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
    n = x.shape[1]
    one = torch.eye(n, dtype=x.dtype).expand(len(x), k.shape[1], n, n)
    return layer.attend(q, k, one).detach()


def assert_reads(layer, x, sample=0):
    graph = attention_graph(layer, x, sample=sample)
    found = torch.stack([graph.weights(0, head) for head in range(HEADS)])
    torch.testing.assert_close(found, weights_of(layer, x)[sample])


TABLE = torch.randn(HEADS, 7, dtype=torch.float64)
OURS = {
    "a pattern": {"graph": causal() & (window(2) | global_tokens(1))},
    "no graph": {},
    "per head": {"graph": per_head(window(1), causal(), full(), global_tokens(1))},
    "per sample": {"graph": per_sample(window(1), causal())},
    "a score": {"graph": window(3), "score": softcap(2.0), "bias": relative(TABLE)},
    "a scale": {"graph": causal(), "scale": 0.3},
    "lengths": {"graph": window(3), "lengths": torch.tensor([3, 5])},
}


@pytest.mark.parametrize("n", [1, 2, 9])
@pytest.mark.parametrize("sample", [0, 1])
@pytest.mark.parametrize("case", OURS)
def test_our_function(case, sample, n):
    torch.manual_seed(0)
    layer = Layer(lambda q, k, v: edgewise.attention(q, k, v, **OURS[case]))
    if case != "lengths" or n == 9:
        assert_reads(layer, values(n), sample)


def test_terms_of_edges_and_a_bias_of_pairs():
    torch.manual_seed(0)
    graph = window(2)
    terms = torch.randn(2, 2, HEADS, graph.count(9), dtype=torch.float64)
    bias = torch.randn(9, 9, dtype=torch.float64)
    layer = Layer(
        lambda q, k, v: edgewise.attention(
            q, k, v, graph, bias=bias, edge_bias=terms[0], edge_scale=terms[1]
        )
    )
    assert_reads(layer, values(9), sample=1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"attn_mask": torch.ones(9, 9, dtype=torch.bool).tril(1)},
        {"attn_mask": torch.randn(2, 1, 9, 9, dtype=torch.float64), "scale": 0.5},
    ],
)
def test_the_function_of_torch(options):
    torch.manual_seed(0)
    layer = Layer(lambda q, k, v: scaled_dot_product_attention(q, k, v, **options))
    assert_reads(layer, values(9), sample=1)


def test_heads_that_share_keys():
    def attend(q, k, v):
        return scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True)

    torch.manual_seed(0)
    layer, x = Layer(attend), values(5)
    graph = attention_graph(layer, x)
    q, k, _ = layer.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
    wanted = (q @ k[:, [0, 0, 1, 1]].mT / 2**0.5).softmax(-1)[0]
    found = torch.stack([graph.weights(0, head) for head in range(HEADS)])
    torch.testing.assert_close(found, wanted.detach())


@pytest.mark.parametrize("need", [False, True])
def test_modules_of_torch(need):
    torch.manual_seed(0)
    attend = nn.MultiheadAttention(D, HEADS, batch_first=True, dtype=torch.float64)
    seen = []

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = attend

        def forward(self, x):
            seen.append(self.inner(x, x, x, need_weights=need))
            return seen[-1][0]

    x = values(6)
    graph = attention_graph(Own().train(), x, sample=1)
    attend.eval()
    out, weights = attend(x, x, x, average_attn_weights=False)
    found = torch.stack([graph.weights(0, head) for head in range(HEADS)])
    torch.testing.assert_close(found, weights[1].detach())
    torch.testing.assert_close(seen[0][0], out.detach())
    assert (seen[0][1] is None) is not need
    if need:
        torch.testing.assert_close(seen[0][1], weights.mean(1).detach())
    assert [call.name for call in graph.calls] == ["inner"]


def test_an_encoder_of_torch_with_padding():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(D, HEADS, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    padded = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    graph = attention_graph(encoder, values(5).float(), src_key_padding_mask=padded, sample=1)
    assert graph.heads == (HEADS,) * 3
    assert graph.weights(2, 0)[:, 3:].abs().max() == 0
    assert [call.name for call in graph.calls] == [f"layers.{at}.self_attn" for at in range(3)]
    assert encoder.training


def test_a_compiled_module_and_a_page():
    layer = Layer(lambda q, k, v: edgewise.attention(q, k, v, window(1)))
    compiled = torch.compile(layer, backend="aot_eager")
    page = view(compiled, x=values(4), tokens=["a", "b", "c", "d"])
    assert "window(1)" in attention_graph(compiled, values(4)).calls[0].rule
    assert len(page.html) > 1000


def test_what_cannot_be_read():
    with pytest.raises(NoAttention, match="makes no call of self-attention"):
        attention_graph(nn.Linear(4, 4), torch.zeros(2, 4))
    with pytest.raises(NoTokens, match="names no input"):
        attention_graph(nn.DataParallel(nn.Linear(4, 4)), torch.zeros(2, 4))
    layer = Layer(
        lambda q, k, v: edgewise.attention(q, k, v, window(0), edge_key=k[:, :, :4] * 0.0)
    )
    with pytest.raises(NoAttention, match="edge_key"):
        attention_graph(layer, values(4))
    sparse = Layer(lambda q, k, v: edgewise.attention(q, k, v, window(1)))
    with pytest.raises((NoAttention, NoSuchHead), match="no sample 2"):
        attention_graph(sparse, values(4), sample=2)


def test_attention_to_other_tokens_is_left_out():
    class Cross(nn.Module):
        def forward(self, x):
            return edgewise.attention(x, x[:, :2], x[:, :2])

    with pytest.raises(NoAttention, match="makes no call"):
        attention_graph(Cross(), values(4))


@pytest.mark.parametrize("length", [4, 5])
def test_a_decoder_attends_to_its_encoder_beside_itself(length):
    """Also where both have as many tokens: attention to those of the encoder is no layer."""
    torch.manual_seed(0)
    model = nn.Transformer(D, HEADS, 1, 2, 16, batch_first=True, dtype=torch.float64)
    graph = attention_graph(model, src=values(length), tgt=values(4))
    own = ["encoder.layers.0.self_attn", *(f"decoder.layers.{at}.self_attn" for at in range(2))]
    assert [call.name for call in graph.calls] == own


def test_queries_and_keys_that_are_computed_twice_are_of_one_sequence():
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(D, dtype=torch.float64)
            self.inner = nn.MultiheadAttention(D, HEADS, batch_first=True, dtype=torch.float64)

        def forward(self, x):
            return self.inner(self.norm(x), self.norm(x), x)[0]

    assert attention_graph(Normed(), values(4)).heads == (HEADS,)
