"""BigBird and Longformer attend to what Hugging Face's own layers attend to.

With queries of zero every key counts equally, and with a one-hot value per key (or key block) the
output is the multiplicity of each, divided by their sum: the graph is read off the layer itself.
"""

import pytest
import torch

from edgewise.graphs import bigbird, longformer

pytest.importorskip("transformers")
from transformers import BigBirdConfig, BigBirdModel, LongformerConfig
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

HEADS, BLOCK = 2, 64


def opened(layer: torch.nn.Module) -> torch.nn.Module:
    """All queries and keys 0, values as they come in."""
    for name, part in layer.named_children():
        torch.nn.init.zeros_(part.bias)
        torch.nn.init.eye_(part.weight) if "value" in name else torch.nn.init.zeros_(part.weight)
    return layer


def bigbird_blocks(n: int, layer: int, *, training: bool) -> torch.Tensor:
    """(heads, block rows, key blocks): how often Hugging Face counts each."""
    blocks = n // BLOCK
    config = BigBirdConfig(
        hidden_size=HEADS * blocks, num_attention_heads=HEADS, block_size=BLOCK, num_random_blocks=3
    )
    attention = opened(BigBirdBlockSparseAttention(config, seed=layer)).train(training)
    one_hot = torch.eye(blocks).repeat_interleave(BLOCK, dim=0).repeat(1, HEADS)
    blocked, band, rows, keys = BigBirdModel.create_masks_for_block_sparse_attn(
        torch.ones(1, n), BLOCK
    )
    with torch.no_grad():
        out, _ = attention(one_hot[None], band, rows, keys, blocked, blocked)
    share = out.view(n, HEADS, blocks).transpose(0, 1)[:, ::BLOCK].double()
    least = share.where(share > 1e-4, 1.0).amin(dim=2, keepdim=True)
    return (share / least).round().long()


@pytest.mark.parametrize("variant", ["hf_train", "hf_eval"])
@pytest.mark.parametrize("n", [1024, 1536, 2048, 4096])
@pytest.mark.parametrize("layer", [0, 3])
def test_bigbird_is_hugging_face_s(variant: str, n: int, layer: int) -> None:
    pattern = bigbird(BLOCK, 3, seed=layer, variant=variant, heads=HEADS)
    theirs = bigbird_blocks(n, layer, training=variant == "hf_train")
    for head, ours in enumerate(pattern.per_head()):
        counted = torch.zeros(n // BLOCK, n // BLOCK, dtype=torch.int64)
        i, j = ours.edges(n)
        counted[i // BLOCK, j // BLOCK] = ours.multiplicities(n)
        assert torch.equal(counted, theirs[head])


def test_the_paper_differs_at_2048_tokens_only() -> None:
    for n in (1024, 1536, 2048, 3072, 4096):
        paper, hugging_face = (bigbird(variant=v).blocks(n) for v in ("paper", "hf_train"))
        assert torch.equal(paper.dense(), hugging_face.dense()) == (n != 2048)


def test_multiplicities_are_a_bias() -> None:
    pattern = bigbird(variant="hf_eval")
    assert pattern.multiplicities(1024).max() == 4
    assert torch.equal(pattern.log_bias(1024).exp().round().long(), pattern.multiplicities(1024))


@pytest.mark.parametrize("tokens", [(0,), (0, 30), ()])
def test_longformer_is_hugging_face_s(tokens: tuple[int, ...]) -> None:
    n, radius = 64, 4
    config = LongformerConfig(
        hidden_size=n, num_attention_heads=1, attention_window=[2 * radius], num_hidden_layers=1
    )
    attention = opened(LongformerSelfAttention(config, layer_id=0)).eval()
    is_global = torch.zeros(1, n, dtype=torch.bool)
    is_global[0, list(tokens)] = True
    with torch.no_grad():
        (out,) = attention(
            torch.eye(n)[None],
            attention_mask=is_global.float() * 10000.0,
            is_index_masked=torch.zeros(1, n, dtype=torch.bool),
            is_index_global_attn=is_global,
            is_global_attn=bool(tokens),
        )
    assert torch.equal(out[0] > 1e-6, longformer(radius, tokens).dense(n))
