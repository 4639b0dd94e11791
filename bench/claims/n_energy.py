"""(n) Joules per epoch of full and sparse attention, and the loss that each reaches.

Energy is read from the counter of the GPU (NVML) or, on a CPU, of its package (RAPL).
"""

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch
from claims.claim import Claim, Verdict, bars, grouped, main, mean, seeds_of, spread_table
from claims.runs import RECIPES, short, text_folder, trained

from edgewise import training

RAPL = Path("/sys/class/powercap/intel-rapl:0/energy_uj")
GRAPHS = {"full": "causal()", "sparse": "window({w}) | global_tokens(1)"}
WINDOW = {"tiny": 4, "small": 32, "full": 256}
SETTINGS = {
    "tiny": ["data.context=16", "model.size=16", "model.layers=1", "model.heads=2", *short(3)],
    "small": ["data.context=512", "training.batch=4", "model.size=64", "model.layers=2",
              *short(300, 20)],
    "full": ["data.context=8192", "training.batch=8", "model.size=384", "model.layers=6",
             "model.heads=6", "training.precision=bfloat16", *short(2000, 100)],
}  # fmt: skip


def meter(size: str) -> tuple[str, Callable[[], float]]:
    """What is counted, and a function that reads it. Tests count seconds."""
    if size == "tiny":
        return "seconds", time.process_time
    if torch.cuda.is_available():
        nvml = import_module("pynvml")
        nvml.nvmlInit()
        device = nvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
        return "joules", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(device) / 1e3
    try:
        RAPL.read_text()
    except OSError as problem:
        raise SystemExit(
            "energy cannot be read: there is no GPU with NVML, and the counter of the CPU "
            f"({RAPL}) is not readable: {problem.strerror}"
        ) from None
    return "joules", lambda: int(RAPL.read_text()) / 1e6


def measure(size):
    unit, read = meter(size)
    rows, data = [], text_folder(size)
    for name, graph in GRAPHS.items():
        for seed in seeds_of(size):
            settings = [f"model.graph={graph.format(w=WINDOW[size])}", f"training.seed={seed}"]
            recipe = training.load(RECIPES / "shakespeare-cpu.toml", [*SETTINGS[size], *settings])
            tokens = len(recipe.data.read(data).parts["train"])
            before = read()
            run = trained(recipe, data=data)
            used, how = read() - before, recipe.training
            epochs = how.steps * how.batch * recipe.data.context / tokens
            rows.append({"variant": name, "seed": seed, "unit": unit, "epoch": used / epochs,
                         "loss": run["validation loss"], "pairs": run["pairs"]})  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def judge(rows):
    found = grouped(rows, "variant")
    used = {name: mean(of, "epoch") for name, of in found.items()}
    loss = {name: mean(of, "loss") for name, of in found.items()}
    less, level = used["sparse"] < used["full"], loss["sparse"] <= loss["full"] + 0.02
    answer = "holds" if less and level else "holds in part" if less else "does not hold"
    unit = rows[0]["unit"]
    why = (
        f"an epoch takes {used['full']:,.1f} {unit} with all earlier tokens and "
        f"{used['sparse']:,.1f} with the sparse graph, at losses of {loss['full']:.3f} and "
        f"{loss['sparse']:.3f} after as many steps."
    )
    return Verdict(answer, why)


def draw(figure, rows):
    bars(figure, rows, f"{rows[0]['unit']} per epoch", rows[0]["unit"], "epoch")


def table(rows):
    return spread_table(rows, "variant", per_epoch=("epoch", 1), loss="loss", pairs=("pairs", 0))


CLAIM = Claim(
    letter="n",
    name="n_energy",
    title="Sparse attention needs less energy at equal loss",
    words="Do we really need massive models with massive carbon footprints?",
    source="[Transformers are Graph Neural Networks]"
    "(https://thegradient.pub/transformers-are-graph-neural-networks/)",
    measured={
        "small": "the recipe `shakespeare-cpu` at two layers of 64 features, 512 characters, 300 "
        "steps of 4 texts, with all earlier tokens and with a window of 32 and one global token; "
        "energy of the CPU package by RAPL. Without a readable counter the script refuses",
        "full": "six layers of 384 features, 8,192 characters, 2,000 steps of 8 texts, a window of "
        "256; energy of the GPU by NVML",
    },
    measure=measure,
    judge=judge,
    draw=draw,
    table=table,
    data=True,
)

if __name__ == "__main__":
    main(CLAIM)
