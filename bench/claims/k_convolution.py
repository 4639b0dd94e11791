"""(k) Dynamic and lightweight convolution against attention, at equal steps."""

from dataclasses import dataclass

from claims.claim import Claim, Verdict, bars, grouped, main, mean, seeds_of, spread_table
from claims.runs import short, sweep, text_folder

from edgewise.language import Program, R, V, repeat
from edgewise.training.models.language import LanguageTransformer
from edgewise.training.objectives.texts import Causal
from edgewise.training.recipe import KINDS
from edgewise.training.schema import number
from edgewise.zoo import convolution, gpt2, layers
from edgewise.zoo.parts import layer_norm, linear


@dataclass(frozen=True, kw_only=True)
class Convolution(LanguageTransformer):
    """A language model whose layers are causal convolutions of the zoo, of `taps` tokens."""

    hidden: int = number(least=1)
    taps: int = number(7, least=1)
    dynamic: bool = True

    def sizes(self, words: int, length: int) -> gpt2.Config:
        sizes = words, self.size, self.heads, self.hidden, self.layers, length
        return gpt2.Config(*sizes, dropout=0.0)

    def program(self, words: int, context: int) -> Program:
        config = self.sizes(words, context)
        how = convolution.Config(
            size=self.size, heads=self.heads, taps=self.taps, hidden=self.hidden,
            layers=self.layers, dynamic=self.dynamic, causal=True, dropout=0.0,
        )  # fmt: skip
        stack = repeat(lambda x: convolution.layer(x, how), self.layers)(R.x)
        return Program(
            [
                *gpt2.embeddings(R.x, config),
                *layers.positions(R.x, config),
                stack,
                *layer_norm(stack.out, R.final, self.size),
                *linear(R.final, R.logits, self.size, words),
            ],
            domains={**layers.domains(config), V.K: self.taps},
        )


KINDS["model"]["convolution"] = Convolution
Causal.model = (*Causal.model, Convolution)
CONVOLUTION = ["model.kind=convolution", "model.taps=7", "model.hidden={hidden}"]
VARIANTS = {
    "attention": [],
    "attention, window of 7": ["model.graph=window(6)"],
    "dynamic convolution": CONVOLUTION,
    "lightweight convolution": [*CONVOLUTION, "model.dynamic=false"],
}
SETTINGS = {
    "tiny": ["data.context=16", "model.size=16", "model.layers=1", "model.heads=2", *short(3)],
    "small": ["data.context=64", "training.batch=8", "model.size=64", "model.layers=4",
              *short(400, 20)],
    "full": ["data.context=256", "training.batch=64", "model.size=384", "model.layers=6",
             "model.heads=6", *short(5000, 100)],
}  # fmt: skip
HIDDEN = {"tiny": 64, "small": 256, "full": 1536}


def measure(size):
    variants = {
        name: [s.format(hidden=HIDDEN[size]) for s in settings]
        for name, settings in VARIANTS.items()
    }
    return sweep(variants, "shakespeare-cpu", SETTINGS[size], seeds_of(size), text_folder(size))


def judge(rows):
    loss = {name: mean(of, "loss") for name, of in grouped(rows, "variant").items()}
    attention, dynamic = loss["attention"], loss["dynamic convolution"]
    better, level = dynamic < attention, dynamic < attention + 0.02
    answer = "holds" if better else "holds in part" if level else "does not hold"
    why = (
        f"dynamic convolution of 7 tokens ends at {dynamic:.3f} nats, lightweight at "
        f"{loss['lightweight convolution']:.3f}, attention to all earlier characters at "
        f"{attention:.3f}, attention to the last 7 at {loss['attention, window of 7']:.3f}. So "
        f"attention is {'not needed' if level else 'better'} at equal steps at this size."
    )
    return Verdict(answer, why)


def draw(figure, rows):
    bars(figure, rows, "validation loss", "nats per character")


def table(rows):
    return spread_table(rows, "variant", loss="loss", weights=("parameters", 0))


CLAIM = Claim(
    letter="k",
    name="k_convolution",
    title="Transformers could do without attention",
    words="Could Transformers benefit from ditching attention, altogether? Yann Dauphin and "
    "collaborators' recent work suggests an alternative ConvNet architecture.",
    source="[Transformers are Graph Neural Networks]"
    "(https://thegradient.pub/transformers-are-graph-neural-networks/), after "
    '[Wu et al.](https://arxiv.org/abs/1901.10430): "dynamic convolutions improve over strong '
    'self-attention models"',
    measured={
        "small": "the recipe `shakespeare-cpu` at four layers of 64 features, 64 characters, 400 "
        "steps of 8 texts, on the first 300,000 characters; convolutions are `zoo.convolution`, "
        "causal, with as many layers, heads and hidden features",
        "full": "six layers of 384 features, 256 characters, 5,000 steps of 64 texts",
    },
    measure=measure,
    judge=judge,
    draw=draw,
    table=table,
    data=True,
)

if __name__ == "__main__":
    main(CLAIM)
