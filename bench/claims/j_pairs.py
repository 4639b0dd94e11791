"""(j) Pairs computed by a rule against those a masked kernel computes, over all zoo models."""

import re
from dataclasses import fields, replace

import torch
from claims.claim import SEEDS, Claim, Verdict, grouped, main, mean, panel
from plots import COLOURS

from edgewise import R, numbers, zoo
from edgewise.graphs import parse

TOKENS = {"tiny": 64, "small": 1024, "full": 16384}
BLOCK = 128
SIZES = {"vocabulary": 6, "size": 32, "heads": 2, "hidden": 8, "layers": 2, "decoder_layers": 2,
         "dropout": 0.0}  # fmt: skip
DRAWN = (zoo.bigbird, zoo.reformer)  # whose pairs depend on a seed


def own_sizes(model, n):
    """Sizes of one model; patterns are as wide as they are for long texts."""
    side = round((n / 4) ** 0.5) * 2  # n patches
    return {
        zoo.llama: {"groups": 2, "d": 16},
        zoo.phi: {"groups": 2, "d": 16, "rotated": 8},
        zoo.whisper: {"mels": 4, "frames": n},
        zoo.vit: {"image": side, "patch": 1},
        zoo.longformer: {"radius": n // 16},
        zoo.bigbird: {"block": max(4, n // 64), "random": 3},
        zoo.transformer_xl: {"memory": n},
        zoo.compressive: {"memory": n // 2, "compressed": n // 2},
        zoo.adaptive_span: {"span": n // 8, "ramp": 4},
        zoo.bp_transformer: {"k": 4},
        zoo.deberta: {"reach": 16},
        zoo.deberta_v2: {"reach": 16, "buckets": 8},
    }.get(model, {})


def measure(size):
    n, rows = TOKENS[size], []
    for model in (zoo.encoder, *zoo.TRANSFORMERS):
        for seed in SEEDS if model in DRAWN else SEEDS[:1]:
            rows.append(pairs_of(model, n, seed))
            print(rows[-1], flush=True)
    return rows


def pairs_of(model, n, seed):
    """The pairs of one text of n tokens, in all layers and heads of a small model."""
    names = {field.name for field in fields(model.Config)}
    sizes = {key: value for key, value in SIZES.items() if key in names} | own_sizes(model, n)
    sizes |= {"length": n + 8} if "length" in names else {}
    sizes |= {"seed": seed} if model is zoo.bigbird else {}
    config = replace(model.Config(), **sizes)
    program = model.program(config)
    relations = {rule.head.relation for rule in program.rules}
    logits = "logits" in relations and model is not zoo.bert
    compiled = program.compile(R.logits if logits else R.out, seed=seed)
    inputs = {key: made_up(key, n, config, seed) for key in compiled.inputs}
    shown = compiled.explain(**inputs, stage="kernels").to_json()["kernels"]["relations"]
    steps = [(one["relation"], step) for one in shown for step in one["steps"]]
    found = [step for name, step in steps if "pairs" in step or name.endswith(".weights")]
    return {
        "model": model.__name__.rpartition(".")[2],
        "tokens": n,
        "seed": seed,
        "pairs": sum(step.get("pairs", step.get("groundings")) for step in found),
        "masked": sum(masked(step, n, 1) for step in found),
        "blocks": None
        if any("shape=" in step.get("pattern", "") for step in found)
        else sum(masked(step, n, BLOCK) for step in found),
    }


def made_up(name, n, config, seed):
    """An input of a model: random tokens, no padding."""
    torch.manual_seed(seed)
    d = SIZES["size"]
    match name:
        case "mask":
            return torch.ones(1, n, 1)
        case "x":
            return torch.randn(1, n, d)
        case "segment":
            return numbers(torch.zeros(1, n, dtype=torch.long))
        case "feature":
            return torch.randn(1, n, config.mels)
        case "pixel":
            return torch.randn(1, 3, config.image, config.image, 1)
        case "memory" | "compressed":
            return torch.randn(1, config.layers, getattr(config, name), d)
        case "edge":
            return config.edges(n)
    return numbers(torch.randint(SIZES["vocabulary"], (1, n)))


def masked(step, n, block):
    """What a kernel with a mask computes: all pairs, or those of all blocks with a pair."""
    pattern = step.get("pattern", f"causal() & window({n // 8})")  # spans are listed, as edges
    if pattern == "full()":
        return step["pairs"]
    shape = re.search(r"shape=\((\d+), (\d+)\)", pattern)
    rows, keys = map(int, shape.groups()) if shape else (n, n)
    if block == 1 or shape:
        return SIZES["heads"] * rows * keys
    return SIZES["heads"] * min(parse(pattern).blocks(n, block=block).count * block**2, n * n)


def judge(rows):
    sparse = [row for row in rows if row["pairs"] < 0.45 * row["masked"]]
    names = sorted({row["model"] for row in sparse})
    never = all(row["pairs"] <= (row["blocks"] or row["masked"]) <= row["masked"] for row in rows)
    times = [row["masked"] / row["pairs"] for row in sparse]
    block = [row["blocks"] / row["pairs"] for row in sparse if row["blocks"]]
    every = len({row["model"] for row in rows})
    why = (
        f"of {every} Transformers {len(names)} have rules that leave most pairs out "
        f"({', '.join(names)}): a kernel that masks all pairs computes {min(times):.1f} to "
        f"{max(times):.1f} times as many, one that skips empty blocks of {BLOCK} still "
        f"{min(block):.1f} to {max(block):.1f} times. Causal models compute half of them, and "
        "models on the complete graph all: there a rule saves nothing."
    )
    return Verdict("holds" if never and sparse else "does not hold", why)


def draw(figure, rows):
    axes = panel(figure, "pairs beside those of the rule", "", "times the pairs of the rule")
    found = grouped(rows, "model")
    for colour, key, label in zip(
        COLOURS, ("masked", "blocks"), ("masked, all pairs", f"masked, blocks of {BLOCK}")
    , strict=False):  # fmt: skip
        of = {name: rows for name, rows in found.items() if rows[0][key]}
        values = [mean(rows, key) / mean(rows, "pairs") for rows in of.values()]
        axes.semilogy(
            [list(found).index(name) for name in of], values, "o", color=colour, label=label
        )
    axes.set_xticks(range(len(found)), list(found), rotation=60, ha="right", fontsize=7)
    axes.legend(fontsize=8, frameon=False)


def table(rows):
    head = (
        "model",
        "pairs of the rule",
        "masked, all pairs",
        f"masked, blocks of {BLOCK}",
        "times",
    )
    lines = []
    for name, found in grouped(rows, "model").items():
        pairs, every = (mean(found, key) for key in ("pairs", "masked"))
        blocks = mean(found, "blocks") if found[0]["blocks"] else None
        times = f"{every / pairs:.1f}" + (f" / {blocks / pairs:.1f}" if blocks else "")
        shown = "–" if blocks is None else f"{blocks:,.0f}"
        lines.append((f"`{name}`", f"{pairs:,.0f}", f"{every:,.0f}", shown, times))
    return [head, *lines]


CLAIM = Claim(
    letter="j",
    name="j_pairs",
    title="A rule computes the pairs that it names, a mask computes all of them",
    words="Wouldn't it be nice for Transformers if we didn't have to compute pair-wise "
    "compatibilities between each word pair in the sentence?",
    source="[Transformers are Graph Neural Networks]"
    "(https://thegradient.pub/transformers-are-graph-neural-networks/)",
    measured={
        "small": "every Transformer of the zoo at two layers of two heads on a text of 1,024 "
        "tokens: the pairs that `explain` says its plan computes, beside all pairs, which a kernel "
        "with a dense mask computes, and beside the pairs of all blocks of 128 × 128 that have "
        "one, which a kernel with a block mask computes (not counted for relations of edges). "
        "Only the pairs of BigBird and Reformer depend on the seed",
        "full": "the same with 16,384 tokens",
    },
    measure=measure,
    judge=judge,
    draw=draw,
    table=table,
)

if __name__ == "__main__":
    main(CLAIM)
