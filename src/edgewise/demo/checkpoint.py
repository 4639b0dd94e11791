"""A pretrained checkpoint: where “it” attends, and semantic search."""

from dataclasses import dataclass
from typing import Any

import torch

from edgewise.demo.model import STORY
from edgewise.errors import EdgewiseError
from edgewise.zoo import fetch, from_pretrained
from edgewise.zoo.pretrained.fetch import CannotFetch

NAME = "all-minilm-l6-v2"
LINES = """\
The orchestra rehearsed the slow movement until midnight.
A violin string snapped in the middle of the concert.
She hummed the tune all the way home.
The bakery sells out of rye bread before nine.
He kneaded the dough and left it to rise.
Fresh strawberries are cheapest in June.
The goalkeeper saved a penalty in the last minute.
Our team lost the final by a single point.
He runs ten kilometres before breakfast.
The ferry was late because of the fog.
Trains to the coast leave every half hour.
We missed the bus and walked across the bridge.
The telescope found water vapour on a distant planet.
Her thesis explains why glaciers slide.
The vaccine is kept below minus seventy degrees.
A patch for the security hole was released overnight.
The compiler rejects the program with a clear message.
The server ran out of memory during the backup.
The cat slept on the warm radiator.
Wolves have returned to the northern forest.
The old dog no longer chases the postman.
The landlord raised the rent again.
She signed the contract after reading it twice.
The court will decide about the appeal in spring.
It rained for three days without a break.
A cold wind blew the last leaves from the trees.
The river froze for the first time in years.
Grandmother kept every letter in a wooden box.
The children built a castle of sand.
He forgot his umbrella on the train.""".splitlines()
QUERIES = {
    "the band practised until late at night": 0,
    "he works the flour by hand": 4,
    "the keeper stops the ball": 6,
    "the computer crashed": 17,
    "ice covers the water": 26,
}


@dataclass(frozen=True)
class CheckpointResult:
    """The head that attends most from “it” to “music”, and the lines found."""

    layer: int
    head: int
    heads: int
    shares: dict[str, float]
    found: dict[str, list[tuple[float, str]]]

    @property
    def hits(self) -> int:
        """Queries whose best line has the same meaning."""
        return sum(self.found[q][0][1] == LINES[k] for q, k in QUERIES.items())


def run() -> CheckpointResult | str:
    """The results of the checkpoint, or why it is not available."""
    try:
        model = from_pretrained(fetch(NAME))
    except CannotFetch as problem:
        return problem.message
    except EdgewiseError as problem:  # a package that is not installed
        return f"{problem.message}: {problem.help}"
    return CheckpointResult(*_best_head(model), _search(model))


def _best_head(model: Any) -> tuple[int, int, int, dict[str, float]]:
    tokens = model.tokens([str(STORY)])
    words = model.tokenizer.encode(str(STORY)).tokens
    it, music = words.index("it"), words.index("music")
    best: tuple[float, int, int, dict[str, float]] = (-1.0, 0, 0, {})
    for layer in range(model.config.layers):
        relation = f"layer.{layer}.weights"
        with torch.inference_mode():
            weights = model.compile(relation)(**model.inputs(tokens, relation))[0]
        head = int(weights[:, it, music].argmax())
        share = float(weights[head, it, music])
        if share > best[0]:
            shares = dict(zip(words, weights[head, it].tolist(), strict=True))
            best = (share, layer, head, shares)
    return best[1], best[2], model.config.heads * model.config.layers, best[3]


def _search(model: Any) -> dict[str, list[tuple[float, str]]]:
    vectors = model.embed([*QUERIES, *LINES])
    near = vectors[: len(QUERIES)] @ vectors[len(QUERIES) :].T
    best = near.topk(2, -1)
    return {
        query: [(float(v), LINES[int(k)]) for v, k in zip(values, rows, strict=True)]
        for query, values, rows in zip(QUERIES, best.values, best.indices, strict=True)
    }
