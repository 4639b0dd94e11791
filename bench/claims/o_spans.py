"""(o) Cost falling while spans are learned: adaptive span of the zoo."""

import math
from dataclasses import dataclass, replace

import torch
from claims.claim import Claim, Row, Verdict, grouped, main, mean, panel, seeds_of, spread
from claims.runs import RECIPES, short, text_folder, trained
from measure import cpu_seconds
from plots import COLOURS
from torch import Tensor, nn

from edgewise import R, numbers, training
from edgewise.language import Program
from edgewise.module import Model
from edgewise.training.models.language import LanguageModel, LanguageTransformer
from edgewise.training.objectives.objective import Average
from edgewise.training.objectives.texts import Causal
from edgewise.training.recipe import KINDS
from edgewise.training.runs.run import read_run
from edgewise.training.schema import number
from edgewise.zoo import adaptive_span

RAMP = 4


@dataclass(frozen=True, kw_only=True)
class SpanModel(LanguageTransformer):
    """The zoo's adaptive span, learned as a share of the largest; every head begins with that.

    So a step of the optimiser moves a span by some tokens, as in the authors' code.
    """

    hidden: int = number(least=1)
    span: int = number(least=1)

    def sizes(self, words: int, length: int) -> adaptive_span.Config:
        return adaptive_span.Config(
            vocabulary=words, size=self.size, heads=self.heads, hidden=self.hidden,
            layers=self.layers, span=self.span, ramp=RAMP, dropout=0.0, norm="pre",
        )  # fmt: skip

    def check(self):
        return ()

    def build(self, words, corpus, seed) -> LanguageModel:
        built = super().build(words, corpus, seed)
        with torch.no_grad():
            for name, weight in built.program.named_parameters():
                if name.endswith("span"):
                    weight.fill_(1.0)
        return built

    def program(self, words: int, context: int) -> Program:
        text = adaptive_span.program(self.sizes(words, context)).text()
        share = f"share(H) :- $span(H)={{1 = 1.0}}.\n    z(H) :- clamp(<{self.span}.0> share(H), "
        return Program.parse(text.replace("z(H) :- clamp($span(H)={1 = 0.0}, ", share))


@dataclass(frozen=True)
class ShortSpans(Causal):
    """The loss of the paper: a multiple of the mean span is added."""

    weight: float = number(0.0, least=0.0)
    model = (SpanModel,)

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return super().loss(model, batch) + self.weight * spans(model).mean()

    def measure(self, model: nn.Module, batch: dict[str, Tensor], found: Average) -> None:
        super().measure(model, batch, found)
        z, n = spans(model), batch["token"].shape[1]
        far = (z + RAMP).ceil()[:, None]
        found.add("span", z.mean(), 1)
        found.add("pairs", torch.minimum(torch.arange(n)[None], far).sum(), 1)


def spans(model: nn.Module) -> Tensor:
    """The span of each head of each layer."""
    found = [w.flatten() for name, w in model.program.named_parameters() if name.endswith("span")]
    largest = model.program.weight("layer.0.place").shape[0]
    return largest * torch.cat(found).clamp(0, 1)


KINDS["model"]["adaptive_span"] = SpanModel
KINDS["objective"]["short_spans"] = ShortSpans
MODEL = ["model.kind=adaptive_span", "objective.kind=short_spans"]
SETTINGS = {
    "tiny": ["data.context=16", "model.size=16", "model.hidden=16", "model.layers=1",
             "model.heads=2", "model.span=8", "objective.weight=0.01", *short(4),
             "training.evaluate=2"],
    "small": ["data.context=64", "training.batch=8", "model.size=64", "model.hidden=128",
              "model.layers=2", "model.span=48", "objective.weight=0.003", *short(400, 20),
              "training.evaluate=50"],
    "full": ["data.context=1024", "training.batch=32", "model.size=384", "model.hidden=1536",
             "model.layers=6", "model.heads=6", "model.span=768", "objective.weight=0.0005",
             *short(5000, 100), "training.evaluate=250"],
}  # fmt: skip


def measure(size):
    rows, data = [], text_folder(size)
    for seed in seeds_of(size):
        settings = [*MODEL, *SETTINGS[size], f"training.seed={seed}"]
        recipe = training.load(RECIPES / "shakespeare-cpu.toml", settings)
        curve = []

        def trim(out, of=recipe):
            return trimmed(read_run(out).model.eval(), of, data)

        run = trained(recipe, data=data, use=trim, seen=curve.append)
        for at in curve:
            values = {k.removeprefix("validation "): v for k, v in at.items() if "valid" in k}
            rows.append({"seed": seed, "step": at["step"], **values, "run": run["trimmed"]})
        print(rows[-1], flush=True)
    return rows


@torch.no_grad()
def trimmed(model: Model, recipe, data) -> Row:
    """The time of a forward pass with the learned spans as the largest, and with the first ones."""
    corpus = recipe.data.read(data)
    token = numbers(next(iter(corpus.validation(recipe.training.batch)))["token"])
    weights = dict(model.named_parameters())
    largest = recipe.model.span
    z = largest * max(float(w.max()) for name, w in weights.items() if name.endswith("span"))
    least = max(1, min(largest, math.ceil(z + RAMP)))
    short_ = replace(recipe.model, span=least).program(corpus.words, corpus.context)
    small = short_.compile(R.logits, seed=0).eval()
    for name, weight in small.named_parameters():
        source = weights[name]
        source = source[:least] if name.endswith("place") else source
        weight.copy_(source * largest / least if name.endswith("span") else source)
    assert torch.allclose(model(token=token), small(token=token), atol=1e-3)
    times = [cpu_seconds(lambda m=m: m(token=token), 5)["cpu_s"] for m in (model, small)]
    return {"trimmed": {"span": least, "first_s": times[0], "learned_s": times[1]}}


def judge(rows):
    ends = [run[-1] for run in grouped(rows, "seed").values()]
    starts = [run[0] for run in grouped(rows, "seed").values()]
    fell = mean(ends, "pairs") < 0.9 * mean(starts, "pairs")
    times = [row["run"]["first_s"] / row["run"]["learned_s"] for row in ends]
    faster = min(times) > 1.1 and mean(ends, "loss") <= mean(starts, "loss")
    answer = "holds" if fell and faster else "holds in part" if fell else "does not hold"
    why = (
        f"from step {starts[0]['step']} to {ends[0]['step']} the mean span goes from "
        f"{mean(starts, 'span'):.1f} to {mean(ends, 'span'):.1f} tokens and the pairs of a text "
        f"from {mean(starts, 'pairs'):,.0f} to {mean(ends, 'pairs'):,.0f}, while the loss goes "
        f"from {mean(starts, 'loss'):.3f} to {mean(ends, 'loss'):.3f}. With the largest learned "
        f"span as that of the rules, the forward pass of the same model is {min(times):.2f} to "
        f"{max(times):.2f} times as fast: time follows the longest span, pairs the mean."
    )
    return Verdict(answer, why)


def draw(figure, rows):
    left = panel(figure, "pairs of a text", "step", "pairs", (1, 2, 1))
    right = panel(figure, "validation loss", "step", "nats per character", (1, 2, 2))
    for colour, (seed, run) in zip(COLOURS, grouped(rows, "seed").items(), strict=False):
        for axes, key in ((left, "pairs"), (right, "loss")):
            axes.plot([r["step"] for r in run], [r[key] for r in run], "o-", ms=3, color=colour,
                      label=f"seed {seed}")  # fmt: skip
    left.legend(fontsize=8, frameon=False)


def table(rows):
    head = ("step", "mean span", "pairs of a text", "validation loss")
    return [
        head,
        *(
            (step, spread(of, "span", 1), spread(of, "pairs", 0), spread(of, "loss"))
            for step, of in grouped(rows, "step").items()
        ),
    ]


CLAIM = Claim(
    letter="o",
    name="o_spans",
    title="Cost falls while spans are learned",
    words="We propose a novel self-attention mechanism that can learn its optimal attention span. "
    "This allows us to extend significantly the maximum context size used in Transformer, while "
    "maintaining control over their memory footprint and computational time.",
    source="[Adaptive Attention Span in Transformers](https://arxiv.org/abs/1905.07799), abstract",
    measured={
        "small": "`zoo.adaptive_span` at two layers of four heads, spans of at most 48 of 64 "
        "characters, which all begin at 48, 0.003 times the mean span added to the loss, 400 steps "
        "of 8 texts of the first 300,000 characters",
        "full": "six layers of six heads, spans of at most 768 of 1,024 characters, 5,000 steps of "
        "32 texts",
    },
    measure=measure,
    judge=judge,
    draw=draw,
    table=table,
    data=True,
)

if __name__ == "__main__":
    main(CLAIM)
