"""The compiler against PyNeuraLogic 0.9.2, the same rules in both, on one thread.

PYTHONPATH=src:bench python bench/pyneuralogic.py [section ...]

PyNeuraLogic gets an environment of its own in the user's cache; it needs a Java runtime, `java`.
The mutagenesis files are read from the folder in EDGEWISE_MUTAGENESIS.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import venv

import torch
from measure import commit, least, write, written
from pyneuralogic_rules import WIDTH, D, encoder, gated, molecules, recurrent, xor

from edgewise import F, Program, R, V, ragged, rows, training_step

HERE = pathlib.Path(__file__).resolve().parent
SHARED = HERE.parents[1] / "shared" / "data" / "relational" / "mutagenesis"
DATA = pathlib.Path(os.environ.get("EDGEWISE_MUTAGENESIS", SHARED))
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
VERSION = "0.9.2"


def peer_python():
    """The Python of an environment that has PyNeuraLogic."""
    folder = CACHE / "edgewise-bench" / f"neuralogic-{VERSION}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        command = [python, "-m", "pip", "install", "-q", f"neuralogic=={VERSION}"]
        subprocess.run(command, check=True)
        (folder / "ready").touch()
    return python


def peer(section, *arguments, memory=4, limit=600):
    """What PyNeuraLogic takes for a section, or why there is no such number."""
    command = [peer_python(), HERE / "pyneuralogic_peer.py", section, memory, *arguments]
    options = {"capture_output": True, "text": True, "timeout": limit, "check": False}
    try:
        with tempfile.TemporaryDirectory() as folder:  # it leaves files where it runs
            run = subprocess.run([str(c) for c in command], cwd=folder, **options)
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {limit} s"}
    if run.returncode:
        return {"failed": (run.stderr.strip().splitlines() or ["killed"])[-1][:200]}
    return json.loads(run.stdout.strip().splitlines()[-1])


def trained(model, data, target, **inputs):
    """One training step, as a function."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimiser.zero_grad()
        out = model(data, **inputs)
        out = out if isinstance(out, torch.Tensor) else out.data
        torch.nn.functional.mse_loss(out, target).backward()
        optimiser.step()

    return step


def one_by_one(model, samples):
    """Epochs of one update a sample: `step.epoch`, calls of a step, and the plain loop."""
    loss = torch.nn.functional.mse_loss
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    step = training_step(model, loss, optimiser)
    epoch = step.epoch([(data, target, inputs) for data, inputs, target in samples])

    def fast():
        for data, inputs, target in samples:
            step(data, target, **inputs)

    def plain():
        for data, inputs, target in samples:
            optimiser.zero_grad()
            loss(model(data, **inputs), target).backward()
            optimiser.step()

    first = least(lambda: (epoch(), epoch(), epoch()), 1)  # the second and third compile
    adam = training_step(model, loss, torch.optim.Adam(model.parameters(), fused=True))
    other = adam.epoch([(data, target, inputs) for data, inputs, target in samples])
    for _ in range(3):
        other()
    return {
        "first": first,
        "epoch": least(epoch, 60),
        "epoch_of_steps": least(fast, 60),
        "epoch_of_adam": least(other, 60),
        "plain_epoch": least(plain, 20),
    }


def ratio(theirs, ours, key):
    if "failed" in theirs:
        return None
    return {unit: round(theirs[key][unit] / ours[key][unit], 2) for unit in ("cpu_s", "wall_s")}


def ours_encoder(n, condition=(), repeats=20):
    x = torch.randn(n, D)

    def build():
        model = Program(encoder(R, V, F, condition)).compile(R.out)
        return model, model.ground(input=x)

    model, data = build()
    step = trained(model, data, torch.zeros(D), input=x)
    step()
    return {"n": n, "build": least(build, 3), "step": least(step, repeats)}


def encoders():
    """Both have all cores: those of the peer's virtual machine are its own choice."""
    torch.set_num_threads(os.cpu_count() or 1)
    found = []
    for n, memory, repeats in ((256, 6, 8), (512, 12, 2)):
        ours, theirs = ours_encoder(n), peer("encoder", n, repeats, memory=memory)
        row = {"tokens": n, "ours": ours, "peer": theirs, "times": ratio(theirs, ours, "step")}
        found.append(row | {"build_times": ratio(theirs, ours, "build")})
    found.append({"tokens": 1024, "ours": ours_encoder(1024)})
    window = (R.special.leq(V.D, 255), R.special.sub(V.I, V.J, V.D))
    found.append({"tokens": 65536, "window": 256, "ours": ours_encoder(65536, window, 2)})
    torch.set_num_threads(1)
    return found


def read_facts(path):
    """The facts of each line: one molecule, or its label."""
    lines = path.read_text().splitlines()
    return [[fact.atom for fact in Program.parse(line).facts] for line in lines]


def mutagenesis():
    examples = read_facts(DATA / "examples.txt")
    facts = [[a for a in atoms if not a.relation.startswith("b_")] for atoms in examples]
    types = sorted({a.relation for sample in facts for a in sample if len(a.terms) == 1})
    labels = torch.tensor([float(q.weight.value) for (q,) in read_facts(DATA / "queries.txt")])
    program = Program(molecules(R, V, F, types))

    def build():
        model = program.compile(R.predict)
        return model, model.ground(facts=ragged(facts))

    model, data = build()
    step = trained(model, data, labels)
    for _ in range(3):  # from then on a step runs what was written down
        step()
    ours = {"build": least(build, 20), "epoch": least(step, 200)}
    pairs = list(zip(model.samples(data), labels.unbind(), strict=True))
    ours_one = one_by_one(model, [(sample, {}, label) for sample, label in pairs])
    files = (DATA / "examples.txt", DATA / "queries.txt")
    theirs = peer("mutagenesis", *files, 30, *types)
    return {
        "ours": ours,
        "ours_one_by_one": ours_one,
        "peer": theirs,
        "build_times": ratio(theirs, ours, "build"),
        "epoch_times": ratio(theirs, ours, "epoch"),
        "epoch_times_one_by_one": ratio(theirs, ours_one, "epoch"),
    }


def ours_recurrence(rules, n):
    """An update by the error of the last state, as a query of the peer has it."""
    model = Program([*rules(R, V, F), R.last <= (R.h(V.T), R._end(V.T))]).compile(R.last)
    first = rows(torch.zeros(0, 1, dtype=torch.int64), torch.randn(1, WIDTH))
    x = rows(torch.arange(1, n + 1), torch.randn(n, WIDTH))
    end = rows(torch.tensor([n]))

    def build():
        return model.ground(first=first, x=x, end=end)

    data, target = build(), torch.zeros(WIDTH)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    step = training_step(model, torch.nn.functional.mse_loss, optimiser)
    epoch = step.epoch([(data, target)])
    for _ in range(4):
        epoch()
    return {"n": n, "build": least(build, 3), "step": least(epoch, 60)}


def recurrence():
    found = []
    for kind, rules in (("RNN", recurrent), ("GRU", gated)):
        for n in (10, 200, 2000):
            row = {"model": kind, "ours": ours_recurrence(rules, n)}
            if n < 2000:  # which takes the peer more than 118 s to build (DESIGN section 6)
                row["peer"] = peer("recurrence", kind, n)
                row["times"] = ratio(row["peer"], row["ours"], "step")
            found.append(row)
    return found


def exclusive_or():
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = torch.tensor([0.0, 1.0, 1.0, 0.0])
    model = Program(xor(R, V, F)).compile(R.xor)
    step = trained(model, None, y, xy=x)
    outer, inner = (torch.nn.Parameter(torch.randn(s)) for s in ((1, 8), (8, 2)))
    optimiser = torch.optim.SGD([outer, inner], lr=0.01)

    def by_hand():
        optimiser.zero_grad()
        out = torch.tanh(torch.tanh(x @ inner.T) @ outer.T).squeeze(1)
        torch.nn.functional.mse_loss(out, y).backward()
        optimiser.step()

    for run in (step, by_hand):
        run()
    ours, hand = ({"epoch": least(run, 300)} for run in (step, by_hand))
    samples = [(None, {"xy": a}, b) for a, b in zip(x.split(1), y.split(1), strict=True)]
    return {
        "ours": ours,
        "ours_one_by_one": (one := one_by_one(model, samples)),
        "torch": hand,
        "times": ratio(hand, ours, "epoch"),
        "peer": (theirs := peer("xor", 300)),
        "epoch_times_one_by_one": ratio(theirs, one, "epoch"),
    }


SECTIONS = {
    "encoder": encoders,
    "mutagenesis": mutagenesis,
    "recurrence": recurrence,
    "xor": exclusive_or,
}


def main():
    if shutil.which("java") is None:
        sys.exit("skipped: PyNeuraLogic needs a Java runtime, and there is no `java` here")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = written("pyneuralogic") | {"neuralogic": VERSION}
    measured = found.setdefault("measured", {})  # sections may be run one by one
    for name in sys.argv[1:] or SECTIONS:
        loads = [round(os.getloadavg()[0], 1)]
        found[name] = SECTIONS[name]()
        loads.append(round(os.getloadavg()[0], 1))
        measured[name] = {"commit": commit(), "load before and after": loads}
        print(json.dumps({name: found[name]}, indent=1), flush=True)
        write("pyneuralogic", found)


if __name__ == "__main__":
    main()
