"""PyNeuraLogic's side of `pyneuralogic.py`: one section, its times as one line of JSON.

Runs in an environment of its own, which has `neuralogic` and not torch.
"""

import json
import random
import resource
import sys
import time

import neuralogic
from neuralogic.core import F, Model, R, Settings, V
from neuralogic.dataset import Dataset, FileDataset, Sample
from neuralogic.nn.loss import MSE
from neuralogic.nn.optim import SGD
from pyneuralogic_rules import WIDTH, D, encoder, gated, molecules, recurrent, xor


def least(run, repeats):
    """The least of several runs: process time, and time on the clock."""
    used, passed = [], []
    for _ in range(repeats):
        a, b = time.process_time(), time.perf_counter()
        found = run()
        used.append(time.process_time() - a)
        passed.append(time.perf_counter() - b)
    return {"cpu_s": min(used), "wall_s": min(passed)}, found


def built(rules, dataset):
    """Seconds to build (model and data), and what was built."""

    def build():
        model = Model()
        model.add_rules(rules)
        model.build(Settings(optimizer=SGD(lr=0.01), error_function=MSE()))
        return model, model.build_dataset(dataset)

    return least(build, 1)


def vector(length):
    return [random.gauss(0, 1) for _ in range(length)]


def encoders(n, repeats):
    facts = [R.input(i)[vector(D)] for i in range(int(n))]
    build, (model, data) = built(encoder(R, V, F), Dataset(Sample(R.out[[0.0] * D], facts)))
    step, _ = least(lambda: model.train(data), int(repeats))
    return {"n": int(n), "build": build, "step": step}


def mutagenesis(examples, queries, repeats, *types):
    rules = molecules(R, V, F, types)
    build, (model, data) = built(rules, FileDataset(examples, queries))
    epoch, found = least(lambda: model.train(data), int(repeats))
    return {"molecules": len(found), "build": build, "epoch": epoch}


def recurrence(kind, n):
    rules = {"RNN": recurrent, "GRU": gated}[kind](R, V, F)
    facts = [R.first[vector(WIDTH)], *(R.x(i)[vector(WIDTH)] for i in range(1, int(n) + 1))]
    sample = Sample(R.h(int(n))[[0.0] * WIDTH], facts)
    build, (model, data) = built(rules, Dataset(sample))
    step, _ = least(lambda: model.train(data), 200 if int(n) < 100 else 30)
    return {"n": int(n), "build": build, "step": step}


def exclusive_or(repeats):
    pairs = [(0, 0, 0.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 0.0)]
    samples = [Sample(R.xor[y], [R.xy[[float(a), float(b)]]]) for a, b, y in pairs]
    build, (model, data) = built(xor(R, V, F), Dataset(samples))
    epoch, _ = least(lambda: model.train(data), int(repeats))
    return {"build": build, "epoch": epoch}


SECTIONS = {
    "encoder": encoders,
    "mutagenesis": mutagenesis,
    "recurrence": recurrence,
    "xor": exclusive_or,
}


def main():
    random.seed(0)
    section, memory, *arguments = sys.argv[1:]
    neuralogic.set_max_memory_size(int(memory))
    neuralogic.initialize()  # the start of the machine below is not part of any build
    found = SECTIONS[section](*arguments)
    found["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
