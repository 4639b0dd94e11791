"""PyNeuraLogic's examples in PyNeuraLogic 0.9.2 and in `edgewise.neuralogic`: the same code.

PYTHONPATH=src:bench python bench/neuralogic_ports.py [EXAMPLE ...]

Each example is a function of `tests/neuralogic/cases.py`; only the package that it gets differs.
An epoch is one update for each query, by gradient descent and by Adam. PyNeuraLogic gets an
environment of its own in the user's cache; it needs a Java runtime, `java`. Process time: that of
PyNeuraLogic includes the threads of its virtual machine, which compiles for some 10,000 epochs: it
is measured after twice as many. A call trains 1,000 epochs.
"""

import importlib
import inspect
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "neuralogic"))
from cases import CASES, computed  # noqa: E402

EXAMPLES = [
    *("XOR, naive", "XOR, vectorised", "XOR, generalised", "trains", "triangles", "cycles"),
    *("time series", "molecules", "Nations", "relational attention"),
    *("RNN", "GRU", "LSTM", "RvNN", "GCNConv", "TransformerEncoder"),
]
WARM, EPOCHS, ROUNDS = 20_000, 1_000, 30
MARK = "measured "
OPTIMISERS = ["SGD", "Adam"]


def answers(package, name, optimiser):
    """For each line of the standard input one on the output: the numbers with the same weights and
    seconds to build, then seconds for an epoch."""
    nl = importlib.import_module(package)
    for part in ("core", "dataset", "nn.module", "nn.optim.lr_scheduler", "nn.loss"):
        importlib.import_module(f"{package}.{part}")
    made = {"optimizer": getattr(nl.nn.optim, optimiser)(0.01)}
    numbers = computed(nl, lambda package: (*CASES[name](package)[:2], made))
    rules, samples, _ = CASES[name](nl)
    started = time.process_time()
    model = nl.core.Model()
    model.add_rules(rules)
    model.build(nl.core.Settings(optimizer=getattr(nl.nn.optim, optimiser)(0.01)))
    data = model.build_dataset(nl.dataset.Dataset([nl.dataset.Sample(q, f) for q, f in samples]))
    model.train(data)
    build = time.process_time() - started
    model.train(data, epochs=WARM)
    sys.stdin.readline()
    print(MARK + json.dumps({"build_cpu_s": build, "numbers": numbers}), flush=True)
    for _ in sys.stdin:
        cpu, wall = time.process_time(), time.perf_counter()
        model.train(data, epochs=EPOCHS)
        used, passed = time.process_time() - cpu, time.perf_counter() - wall
        print(MARK + json.dumps([used / EPOCHS, passed / EPOCHS]), flush=True)


class Side:
    """One of the two, in a process of its own."""

    def __init__(self, package, python, name, optimiser):
        command = [str(python), __file__, "one", package, name, optimiser]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **pipes)

    def ask(self):
        print(file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise RuntimeError(f"ended with {self.process.wait()}")


def largest(a, b):
    """The largest difference of two nested lists."""
    if isinstance(a, dict):
        shared = a.keys() & b.keys()  # without compression some of PyNeuraLogic's gradients fail
        return max((largest(a[key], b[key]) for key in shared), default=0.0)
    if isinstance(a, list):
        return max((largest(x, y) for x, y in zip(a, b, strict=True)), default=0.0)
    return abs(a - b)


def main():
    if sys.argv[1:2] == ["one"]:
        answers(*sys.argv[2:5])
        os._exit(0)  # which a virtual machine does not delay
    if shutil.which("java") is None:
        sys.exit("skipped: PyNeuraLogic needs a Java runtime, and there is no `java` here")
    from measure import write, written
    from pyneuralogic import VERSION, peer_python

    pythons = {"neuralogic": peer_python(), "edgewise.neuralogic": sys.executable}
    found = {"examples": {}} | written("neuralogic_ports") | {"neuralogic": VERSION}
    for name in sys.argv[1:] or EXAMPLES:
        lines = len(inspect.getsource(CASES[name]).strip().splitlines())
        found["examples"][name] = {"lines": lines}
        for optimiser in OPTIMISERS:
            row = compared(pythons, name, optimiser)
            found["examples"][name][optimiser] = row
            print(name, optimiser, json.dumps(row), flush=True)
        write("neuralogic_ports", found)


def compared(pythons, name, optimiser):
    """Both in turn, so that a busy machine disturbs them alike; the least of each."""
    sides = [Side(package, python, name, optimiser) for package, python in pythons.items()]
    first = [side.ask() for side in sides]
    rounds = [[side.ask() for side in sides] for _ in range(ROUNDS)]
    for side in sides:
        side.process.stdin.close()
        side.process.wait()
    times = []
    for at, known in enumerate(first):
        cpu, wall = (min(column) for column in zip(*[one[at] for one in rounds], strict=True))
        built = known["build_cpu_s"]
        times.append({"build_cpu_s": built, "epoch_cpu_s": cpu, "epoch_wall_s": wall})
    theirs, ours = times
    return {
        "samples": len(first[0]["numbers"]["outputs"]),
        "peer": theirs,
        "ours": ours,
        "times_cpu": theirs["epoch_cpu_s"] / ours["epoch_cpu_s"],
        "times_wall": theirs["epoch_wall_s"] / ours["epoch_wall_s"],
        "largest_difference": largest(first[1]["numbers"], first[0]["numbers"]),
    }


if __name__ == "__main__":
    main()
