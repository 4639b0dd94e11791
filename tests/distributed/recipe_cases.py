"""Small recipes of every kind, run on several ranks and on one process."""

import json
import sys
import threading
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))

import algorithm_files
import graph_files
import treebank_files
from tiny_runs import RECIPES, SIZES, TEXTS

from edgewise import EdgewiseError, training
from edgewise.physical.weights import Layer
from edgewise.training.ranks import ways
from edgewise.training.ranks.ways import ShardedWeights
from edgewise.training.runs import checkpoint
from edgewise.training.runs.folder import rows

STEPS = 4
MORE = "training.ema=0.9", "training.accumulate=2", "training.batch=5", "training.measured=best"
TRIPLES = """\
[data]
kind = "triples"
path = "family"
[model]
{model}
[objective]
kind = "ranking"
{objective}
"""
HINTS = """\
[data]
kind = "algorithms"
algorithm = "bfs"
[model]
kind = "algorithm"
size = 8
[objective]
kind = "hints"
"""
LINKS = """\
[data]
kind = "graph-tables"
path = "circle"
of = "links"
candidates = 5
degrees = 6
[model]
kind = "graph"
layer = "gcn"
hidden = 8
dropout = 0.0
norm = "none"
[objective]
kind = "links"
"""
SAMPLES = 'loss_over = "samples"\nnegatives = 3'
PEOPLE = [f"p{i}" for i in range(9)]


def put(folder):
    """Write the recipes and their data; their paths by name."""
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
    for name in ("family", "circle"):
        (folder / name).mkdir()
    father = [f"{a}\tfather\t{b}\n" for a, b in pairwise(PEOPLE)]
    for name, lines in (("train", father), ("valid", father[2:4]), ("test", father[5:6])):
        (folder / "family" / f"{name}.txt").write_text("".join(lines))
    algorithm_files.write(folder, algorithm_files.chosen)
    graph_files.one_graph(folder)
    graph_files.values(folder)
    graph_files.rings(folder)
    training_section = graph_files.TRAINING
    graph = graph_files.RECIPE.format
    nodes = {"path": "graph.npz", "data": "", "objective": "classes"}
    embeddings = 'kind = "embeddings"\nsize = 8\nscore = '
    texts = {
        **{name: text for name, text in RECIPES.items() if name != "subwords"},
        "subwords": RECIPES["subwords"].replace("heads = 2", 'heads = 2\ngraph = "window(2)"'),
        "complex": TRIPLES.format(model=f'{embeddings}"complex"', objective="") + training_section,
        "samples": TRIPLES.format(model=f'{embeddings}"rotate"', objective=SAMPLES)
        + training_section,
        "rules": TRIPLES.format(model='kind = "soft_rules"\nrank = 1', objective="")
        + training_section,
        "paths": TRIPLES.format(model='kind = "nbfnet"\nsize = 4\nlayers = 2', objective="")
        + training_section,
        "hints": HINTS + training_section,
        "nodes": graph(**nodes, model='layer = "gcn"\ndropout = 0.0\nnorm = "none"'),
        "attention": graph(**nodes, model='layer = "gat"\ndropout = 0.0\nnorm = "layer"'),
        "values": graph(
            path="values.npz",
            data="",
            objective="values",
            model='layer = "gin"\ndropout = 0.0\nnorm = "layer"',
        ),
    }
    texts["graphs"] = graph(
        path="rings.txt",
        data="held_out = 0.25",
        objective="classes",
        model='layer = "gated_gcn"\ndropout = 0.0\nnorm = "layer"',
    )
    texts["parser"] = treebank_files.small_parser(folder, STEPS).read_text()
    start = f'path = "{(folder / "start").as_posix()}"\ndropout = 0.0\n'
    texts["pretrained"] = (
        RECIPES["classify"]
        .replace(f'"classifier"\nhidden = 8\n{SIZES}', f'"pretrained"\n{start}')
        .replace("longest", 'tokenizer = "start"\nlongest')
    )
    texts["links"] = LINKS + training_section
    circle = [f"{i},{(i + far) % 16}" for i in range(16) for far in (1, 3)]
    for name, lines in (
        ("nodes", ["id", *map(str, range(16))]),
        ("edges", ["source,target", *circle]),
    ):
        (folder / "circle" / f"{name}.csv").write_text("\n".join(lines) + "\n")
    found = {}
    for name, text in texts.items():
        found[name] = folder / f"{name}.toml"
        found[name].write_text(text.replace("dropout = 0.1", "dropout = 0.0"))
    return found


def trained(path, out, *settings):
    """Run a recipe in float64; the last event."""
    recipe = training.load(path, ["training.precision=float64", *settings])
    *_, last = training.train(recipe, out)
    return last.kind


def runs(rank, ranks, folder, cases):
    """All cases on the ranks of the group."""
    for name, shard, more in cases:
        out = Path(folder) / f"{name}-{shard}-{ranks}"
        settings = [f"distributed.shard={shard}", *more]
        assert trained(Path(folder) / f"{name}.toml", out, *settings) == "end"


def gathered_layers(rank, ranks, folder, layers):
    """How many layers of a run under FSDP2 have complete weights while one runs, in forward and in
    backward passes, and how many after a step."""
    seen = {"forward": [], "backward": [], "after": []}

    def watched(setup):
        way = ShardedWeights(setup)
        every = [one for one in setup.model.modules() if isinstance(one, Layer)]

        def note(when):
            complete = [all(not hasattr(p, "full_tensor") for p in x.parameters()) for x in every]
            seen[when].append(sum(complete))

        def noted(_, read, given):
            note("forward")
            for x in read[1:]:  # their gradients come while the layer is complete
                if x.requires_grad:
                    x.register_hook(lambda _: note("backward"))

        for layer in every:
            layer.register_forward_hook(noted, prepend=True)  # before FSDP2's, which shards again
        setup.model.register_forward_pre_hook(lambda *_: note("after"), prepend=True)
        return way

    ways.WAYS["fsdp2"] = watched
    more = f"model.layers={layers}", "distributed.shard=fsdp2"
    assert trained(Path(folder) / "generate.toml", Path(folder) / "gathered", *more) == "end"
    return {when: (min(found), max(found)) for when, found in seen.items()}


def continued(rank, ranks, folder, name, more, steps):
    """A run under FSDP2 goes on until it has so many steps."""
    recipe = training.load(
        Path(folder) / f"{name}.toml",
        ["training.precision=float64", "distributed.shard=fsdp2", *more],
    )
    stop = threading.Event()
    for event in training.train(recipe, Path(folder) / f"{name}-changing", stop=stop):
        if event.step >= steps - 1 and rank == ranks - 1:  # one rank is told, all stop
            stop.set()
    return event.kind, event.step


def refused(rank, ranks, folder):
    """What is wrong on one rank or all, and the codes of the errors on this one."""
    folder = Path(folder)
    own = folder / f"own-{rank}"
    own.mkdir()
    (own / "text.txt").write_text("to be or not " * (20 + rank))
    calls = {
        "recipes": ("generate", {"settings": [f"training.rate=0.0{1 + rank}"]}),
        "data": ("generate", {"data": own}),
        "no data": ("generate", {"data": folder if rank == 0 else own / "none"}),
        "ranks": ("generate", {"settings": ["distributed.ranks=3"]}),
        "tokens": (
            "generate",
            {"settings": ["distributed.shard=context", "data.context=1"]},
        ),
        "graphs": ("values", {"settings": ["distributed.shard=graph"]}),
        "statistics": ("values", {"settings": ["model.norm=batch"]}),
        "not writable": ("generate", {"out": folder / "text.txt" / "run"}),
    }
    found = {}
    for name, (recipe, how) in calls.items():
        how = {"settings": (), "data": folder, "out": folder / f"refused-{name}"} | how
        read = training.load(folder / f"{recipe}.toml", how["settings"])
        try:
            for _ in training.train(read, how["out"], data=how["data"]):
                pass
        except EdgewiseError as error:
            found[name] = error.code, error.message
    return found


def state(out, step=STEPS):
    return checkpoint.read(Path(out) / "checkpoints", step)


def differences(one, other):
    """How far two runs are from each other: weights, optimiser, metrics and summary."""
    a, b = state(one), state(other)
    found = [0.0]
    for part in ("model", "optimiser", "average"):
        mine, wanted = getattr(a, part), getattr(b, part)
        assert mine.keys() == wanted.keys()
        found += [float((mine[n] - wanted[n]).abs().max()) for n in wanted if wanted[n].numel()]
    lines = [rows(Path(out) / "metrics.jsonl") for out in (one, other)]
    lines = [*zip(*lines, strict=True), tuple(_summary(out) for out in (one, other))]
    for mine, wanted in lines:
        assert mine.keys() == wanted.keys()
        found += [abs(mine[n] - wanted[n]) for n in wanted if n != "seconds"]
    return max(found)


def _summary(out):
    found = json.loads((Path(out) / "summary.json").read_text())
    return {name: value for name, value in found.items() if isinstance(value, float)}
