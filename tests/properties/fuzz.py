"""Random programs in every mode of the package, against an evaluator that shares no code with it.

    python -m tests.properties.fuzz --seed 0 --count 1000 --modes updating,ragged

Every case is made from its seed alone. A difference is printed as the smallest program, facts and
mode that still show it; `--seed S --count 1` makes it again.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from edgewise import Program
from edgewise.language import nodes
from edgewise.language.statements import atoms
from tests.properties.modes import MAKERS, MODES, SLOW, Trial, outcome, prepared, trial_of

# the smallest case


def smaller(trial: Trial) -> Iterator[Trial]:
    """The trial with one thing less."""
    for at in range(len(trial.program.statements)):
        left = [s for n, s in enumerate(trial.program.statements) if n != at]
        yield _with(trial, left)
    for at in range(len(trial.facts)):
        yield replace(trial, facts=(*trial.facts[:at], *trial.facts[at + 1 :]))
    for at, rule in enumerate(trial.program.statements):
        if isinstance(rule, nodes.Rule):
            parts = [
                replace(rule, body=rule.body[:n] + rule.body[n + 1 :])
                for n in range(len(rule.body))
            ]
            parts += [
                replace(rule, functions=rule.functions[:n] + rule.functions[n + 1 :])
                for n in range(len(rule.functions))
            ]
            if rule.head.weight is not None:
                parts.append(replace(rule, head=replace(rule.head, weight=None)))
            for part in parts:
                if part.body:
                    yield _with(
                        trial,
                        [part if n == at else s for n, s in enumerate(trial.program.statements)],
                    )
    if trial.program.aggregation.name != "sum_agg":
        yield replace(trial, program=_program(trial.program, trial.program.statements, None))


def _with(trial: Trial, statements: Sequence[Any]) -> Trial:
    return replace(trial, program=_program(trial.program, statements, trial.program.aggregation))


def _program(program: Program, statements: Sequence[Any], aggregation: Any) -> Program:
    return Program(
        list(statements),
        aggregation=aggregation,
        domains=dict(program.domains),
        rounds=program.rounds,
    )


def kind(result: str) -> str:
    """What a difference is about: to shrink to another one would hide it."""
    return result.split("]")[0] if "error[" in result else result.split("(")[0][:26]


def smallest(mode: str, trial: Trial, found: str, seconds: float = 60.0) -> tuple[Trial, str]:
    end = time.monotonic() + seconds
    shrunk = True
    while shrunk and time.monotonic() < end:
        shrunk = False
        for candidate in smaller(trial):
            try:
                candidate = prepared(candidate)
                heads = {r.head.relation for r in candidate.program.rules} | set(
                    candidate.program.aliases
                )
                used = {
                    a.relation
                    for r in candidate.program.rules
                    for a in atoms(r)
                    if isinstance(a, nodes.Atom)
                }
                if candidate.output not in heads:
                    continue
                known = used | heads | {candidate.output}
                candidate = replace(
                    candidate, facts=tuple(f for f in candidate.facts if f.relation in known)
                )
                result = outcome(mode, candidate)
            except Exception:
                continue
            if kind(result) == kind(found):
                trial, found, shrunk = candidate, result, True
                break
    return trial, found


def report(mode: str, trial: Trial, found: str) -> str:
    domains = ", ".join(f"V.{name}: {d!r}" for name, d in trial.program.domains)
    return "\n".join([
        f"mode {mode!r}, seed {trial.seed}, output {trial.output}: {found}",
        repr(trial.program),
        *([] if not domains else [f"domains {{{domains}}}"]),
        "facts = [" + ", ".join(map(repr, trial.facts)) + "]",
    ])  # fmt: skip


def run(
    seeds: Sequence[int], modes: Sequence[str], *, seconds: float = float("inf"), each: int = 0
) -> tuple[Counter[tuple[str, str]], list[tuple[str, Trial, str]]]:
    """Results by mode, and the differences; `each` > 0 takes that many modes of a case, in turn."""
    os.environ.setdefault("EDGEWISE_CHECK", "1")
    counted: Counter[tuple[str, str]] = Counter()
    different: list[tuple[str, Trial, str]] = []
    end = time.monotonic() + seconds
    for at, seed in enumerate(seeds):
        if time.monotonic() > end:
            break
        some = [modes[(at * each + n) % len(modes)] for n in range(each)] if each else modes
        for mode in some:
            trial = MAKERS.get(mode, trial_of)(seed)
            result = outcome(mode, trial)
            counted[mode, result.split(":")[0] if not result.startswith("skipped") else result] += 1
            if result.startswith("different"):
                different.append((mode, trial, result))
    return counted, different


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--modes", default=",".join(m for m in MODES if m not in SLOW))
    parser.add_argument("--most", type=int, default=5, help="differences that are made small")
    options = parser.parse_args()
    modes = options.modes.split(",")
    unknown = set(modes) - MODES.keys()
    if unknown:
        parser.error(f"no mode {sorted(unknown)}; there are {', '.join(MODES)}")
    counted, different = run(range(options.seed, options.seed + options.count), modes)
    for mode in modes:
        results = {result: n for (m, result), n in counted.items() if m == mode}
        print(
            f"{mode:28}",
            ", ".join(f"{n} {r}" for r, n in sorted(results.items(), key=lambda p: -p[1])),
        )
    shown: set[tuple[str, str]] = set()
    for mode, trial, found in different:
        if len(shown) < options.most and (mode, kind(found)) not in shown:
            shown.add((mode, kind(found)))
            print("\n" + report(mode, *smallest(mode, trial, found)))
    print(f"\n{sum(counted.values()):,} comparisons, {len(different)} differences")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
