"""Block lists are those of FlexAttention."""

import time

import pytest
import torch
from strategies import NAMES, example
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from edgewise.graphs import PATTERNS, Pattern, cache, from_block_mask, parse, per_head

TEXTS = {  # larger than the examples of the docstrings: for 512 tokens and blocks of 64 or 128
    "full": "full()", "causal": "causal()", "window": "window(100)", "ring": "ring(70)",
    "dilated": "dilated(5, 40)", "strided": "strided(48)", "fixed": "fixed(64, 3)",
    "prefix": "prefix(130)", "blocks": "blocks(96)", "global_tokens": "global_tokens(3)",
    "extra_global_tokens": "extra_global_tokens(64, window(64))",
    "sparse_transformer": "sparse_transformer(160)", "longformer": "longformer(64, (0, 200))",
    "documents": "documents([100, 156, 0, 256])", "random_edges": "random_edges(3, seed=1)",
    "erdos_renyi": "erdos_renyi(0.001, seed=1)", "watts_strogatz": "watts_strogatz(8, 0.1, seed=1)",
    "barabasi_albert": "barabasi_albert(2, seed=1)", "expander": "expander(4, seed=1)",
    "random_blocks": "random_blocks(2, 32, seed=1)", "bigbird": "bigbird(32, 2, seed=1)",
    "binary_partition": "binary_partition(4, tokens=257)",
    "from_blocks": "from_blocks([[0, 1], [1, 1]], 128)", "from_edges": "from_edges([[3, 500]])",
    "tree": f"tree({[-1, *range(299), 100, *range(300, 511)]})",
    "syntax": f"syntax({[-1, *range(511)]}, 3)",
    "grid": "grid(16, 32)(window(3), window(3))",
    "lsh": f"lsh({[[i % 7 for i in range(512)]]}, chunk=64)",
}  # fmt: skip
TEXTS |= {name: example(name) for name in PATTERNS if name not in TEXTS}
FIELDS = ("num_blocks", "indices")


def tokens(pattern: Pattern) -> int:
    return getattr(pattern, "nodes", 512)


def assert_same_mask(ours: BlockMask, theirs: BlockMask) -> None:
    assert ours.shape == theirs.shape
    assert ours.BLOCK_SIZE == theirs.BLOCK_SIZE
    for kind in ("kv", "full_kv", "q", "full_q"):
        for field in FIELDS:
            a, b = getattr(ours, f"{kind}_{field}"), getattr(theirs, f"{kind}_{field}")
            assert a.dtype == b.dtype
            assert torch.equal(a, b), (kind, field)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("block", [64, 128])
def test_blocks_are_those_of_create_block_mask(name: str, block: int) -> None:
    pattern = parse(TEXTS[name])
    n = tokens(pattern)
    dense = pattern.dense(n)
    theirs = create_block_mask(
        lambda b, h, i, j: dense[i, j], None, None, n, n, "cpu", BLOCK_SIZE=block
    )
    assert_same_mask(pattern.block_mask(n, block=block), theirs)


LONG = 4096
LONG_TEXTS = TEXTS | {  # those that are made for a number of tokens, or too small to tell much
    "documents": "documents([1000, 1500, 0, 1596])", "window": "window(300)",
    "grid": "grid(64, 64)(window(5), window(5))",
    "erdos_renyi": "erdos_renyi(0.0002, seed=1)", "bigbird": "bigbird(64, 3, seed=1)",
    "binary_partition": "binary_partition(4, tokens=2049)",
    "tree": f"tree({[-1, *range(2999), 100, *range(3000, 4095)]})",
    "syntax": f"syntax({[-1, *range(4095)]}, 3)",
    "lsh": f"lsh({[[i % 7 for i in range(4096)]]}, chunk=64)",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_pattern_at_four_thousand_tokens(name: str) -> None:
    pattern = parse(LONG_TEXTS[name])
    n = getattr(pattern, "nodes", LONG)
    dense = pattern.dense(n)
    theirs = create_block_mask(lambda b, h, i, j: dense[i, j], None, None, n, n, "cpu")
    assert_same_mask(pattern.block_mask(n), theirs)


@pytest.mark.parametrize("text", ["bigbird(64, 3) & causal()", "sparse_transformer(60) | ~ring(9)"])
def test_at_four_thousand_tokens(text: str) -> None:
    pattern = parse(text)
    mod = pattern.block_mask(4000).mask_mod
    theirs = create_block_mask(mod, None, None, 4000, 4000, "cpu")
    assert_same_mask(pattern.block_mask(4000), theirs)


def test_more_keys_than_queries() -> None:
    pattern = parse("causal().shift(-300, 0)")
    ours = pattern.block_mask(200, 500)
    assert_same_mask(ours, create_block_mask(ours.mask_mod, None, None, 200, 500, "cpu"))


def test_each_head_has_its_blocks() -> None:
    ours = per_head(parse("window(9)"), parse("strided(200)")).block_mask(512)
    assert_same_mask(ours, create_block_mask(ours.mask_mod, None, 2, 512, 512, "cpu"))


@pytest.mark.parametrize("name", ["window", "bigbird", "from_edges", "tree", "documents"])
def test_a_block_mask_reads_back(name: str) -> None:
    pattern = parse(TEXTS[name])
    read = from_block_mask(pattern.block_mask(512))
    assert torch.equal(read.dense(512), pattern.dense(512))


@pytest.mark.parametrize(
    "text",
    ["window(256)", "strided(1024) & causal()", "bigbird(64, 3)", f"documents({[4096] * 256})"],
)
def test_a_million_tokens_take_less_than_a_second(text: str) -> None:
    taken = []
    for _ in range(2):
        pattern = parse(text)
        cache.clear()
        start = time.process_time()
        pattern.blocks(1 << 20)
        taken.append(time.process_time() - start)
    assert min(taken) < 1.0
    assert len(pattern.rows(1 << 20).start) < 200_000
