"""PyNeuraLogic's examples in PyNeuraLogic 0.9.2 and in `edgewise.neuralogic`: the same code.

PYTHONPATH=src:bench python bench/neuralogic_ports.py [EXAMPLE ...]

Each example is a function of `tests/neuralogic/cases.py`; only the package that it gets differs.
An epoch is one update for each query, by gradient descent and by Adam. PyNeuraLogic gets an
environment of its own in the user's cache; it needs a Java runtime, `java`. Process time: that of
PyNeuraLogic includes the threads of its virtual machine, which compiles for some 10,000 epochs: it
is measured after twice as many.
"""

import importlib
import inspect
import json
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
WARM, EPOCHS, REPEATS = 20_000, 100, 30
OPTIMISERS = ["SGD", "Adam"]


def measured(package, name, optimiser):
    """Seconds to build and for an epoch, and the numbers with the same weights."""
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
    used, passed = [], []
    for _ in range(REPEATS):
        time.sleep(0.1)  # what disturbs a busy machine passes
        cpu, wall = time.process_time(), time.perf_counter()
        model.train(data, epochs=EPOCHS)
        used.append((time.process_time() - cpu) / EPOCHS)
        passed.append((time.perf_counter() - wall) / EPOCHS)
    times = {"build_cpu_s": build, "epoch_cpu_s": min(used), "epoch_wall_s": min(passed)}
    return {"times": times, "numbers": numbers}


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
        print("\n" + json.dumps(measured(*sys.argv[2:5])))
        return
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
    """Both, one after the other."""
    runs = {}
    for package, python in pythons.items():
        command = [str(python), __file__, "one", package, name, optimiser]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        runs[package] = json.loads(run.stdout.splitlines()[-1])
    theirs, ours = (runs[package] for package in pythons)
    return {
        "samples": len(theirs["numbers"]["outputs"]),
        "peer": theirs["times"],
        "ours": ours["times"],
        "times_cpu": theirs["times"]["epoch_cpu_s"] / ours["times"]["epoch_cpu_s"],
        "times_wall": theirs["times"]["epoch_wall_s"] / ours["times"]["epoch_wall_s"],
        "largest_difference": largest(ours["numbers"], theirs["numbers"]),
    }


if __name__ == "__main__":
    main()
