"""docs/claims.md from the claims and their results.

    PYTHONPATH=bench python bench/claims/report.py [--figures]

Nothing is measured here; `--figures` draws the figures again.
"""

import re
import sys
from importlib import import_module
from pathlib import Path

from claims.claim import ROOT, Claim, figure, stored
from page import table

PAGE = ROOT / "docs" / "claims.md"
ASKED = {
    "a": "Masked language modelling with random, window and global attention",
    "b": "Needle retrieval against hops and spectral gap",
    "c": "Where the norm stands, and warm-up",
    "d": "One head against eight, sum and max",
    "e": "Without √d, the feed-forward, LayerNorm",
    "f": "Translation by sentence length",
    "g": "Heads pruned until 1 % is lost",
    "h": "The best head for each syntactic relation, and what layers know",
    "i": "SST-2 on the complete graph, a window and the syntax graph",
    "j": "Pairs computed by a rule and by a masked kernel",
    "k": "Dynamic convolution against attention",
    "l": "Random graphs approach the complete graph's spectrum",
    "m": "Motifs at long range, with and without random and global edges",
    "n": "Joules per epoch, full and sparse",
    "o": "Cost falling while spans are learned",
    "p": "Agreement of verbs with their subjects, by distance",
}
HEAD = """# Claims, rerun

What papers and articles say about attention as a graph, rerun with this library. A section has the
claim in the words of its source, what was measured, and the verdict, also where the claim does not
hold. The script of the claim computes the verdict from its results. It is about the size that was
measured: *small* takes minutes on one thread of a CPU, where effects of large models need not show;
*full* is for a GPU. A size that was not run has no figures here.

Tables show the mean over seeds and, in brackets, the smallest and the largest value. Losses are
cross entropies in nats. `DATA` is the folder of the data sets that [results](results.md) name.
`PYTHONPATH=bench python bench/claims/report.py` writes this page from
`bench/results/claims_*.json`."""
VERDICTS = {
    "holds": "these claims hold:",
    "holds in part": "in part:",
    "does not hold": "not:",
    "open": "open:",
    "not run": "not run:",
}
NOT_RUN = "Not run at any size yet."


def claims() -> dict[str, Claim]:
    """The claims that have a script, by letter."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]_*.py"))
    return {name[0]: import_module(f"claims.{name}").CLAIM for name in names}


def text() -> str:
    known = claims()
    parts = [HEAD, _verdicts(known), _summary(known)]
    for letter, title in ASKED.items():
        parts.append(_section(known[letter]) if letter in known else _missing(letter, title))
    return "\n\n".join(parts) + "\n"


def _verdicts(known: dict[str, Claim]) -> str:
    """Two sentences: which claims hold at the small size and which do not, and what ran in full."""
    found = {letter: stored(claim) for letter, claim in known.items()}
    said = {
        letter: known[letter].judge(runs["small"]["rows"]).answer if "small" in runs else "not run"
        for letter, runs in found.items()
    }
    said = {letter: said.get(letter, "not run") for letter in ASKED}
    groups = [
        f"{words} {', '.join(f'({a})' for a, answer in said.items() if answer == kind)}"
        for kind, words in VERDICTS.items()
        if kind in said.values()
    ]
    ran = [f"({letter})" for letter, runs in found.items() if "full" in runs]
    small = f"At the small size {'; '.join(groups)}."
    return f"{small} At the full size {', '.join(ran) if ran else 'none'} was run."


def _summary(known: dict[str, Claim]) -> str:
    rows = []
    for letter, title in ASKED.items():
        found = stored(known[letter]) if letter in known else {}
        said = {size: known[letter].judge(run["rows"]).answer for size, run in found.items()}
        shown = [said.get(size, "not run") for size in ("small", "full")]
        title = known[letter].title if letter in known else title
        rows.append((f"[({letter}) {title}](#{_anchor(letter, title)})", *shown))
    return table(("claim", "small, on a CPU", "full, on a GPU"), *rows)


def _anchor(letter: str, title: str) -> str:
    plain = re.sub(r"[^\w\s-]", "", f"{letter} {title}".lower().encode("ascii", "ignore").decode())
    return re.sub(r"[-\s]+", "-", plain).strip("-")


def _missing(letter: str, title: str) -> str:
    return f"## ({letter}) {title}\n\n{NOT_RUN}"


def _section(claim: Claim) -> str:
    found = stored(claim)
    parts = [
        f"## ({claim.letter}) {claim.title}",
        f"> {claim.words}\n>\n> — {claim.source}",
        *(_run(claim, size, found[size]) for size in ("small", "full") if size in found),
    ]
    if found:
        parts.append(f"![{claim.title}](assets/claim-{claim.letter}.svg)")
    else:
        parts.append(f"{NOT_RUN} Its script does: {claim.measured['small']}.")
        parts.append(f"    {claim.command('small')}")
    return "\n\n".join(parts)


def _run(claim: Claim, size: str, run: dict) -> str:
    verdict, where = claim.judge(run["rows"]), run["machine"]
    threads = f", threads: {where['threads']}" if "threads" in where else ""
    seeds = ", ".join(map(str, run["seeds"]))
    seconds = f"{run['cpu_s']:,} s of CPU time" if run["cpu_s"] else "CPU time not recorded"
    return "\n\n".join(
        [
            f"**Measured** ({size}): {claim.measured[size]}.",
            f"**Verdict** ({size}): *{verdict.answer}*. {verdict.why[0].upper()}{verdict.why[1:]}",
            table(*claim.table(run["rows"])),
            f"Seeds {seeds}; {where['hardware']}{threads}, torch {where['torch']}, commit "
            f"{run['commit']}, {seconds}:",
            f"    {run['command']}",
        ]
    )


def main() -> None:
    for claim in claims().values() if "--figures" in sys.argv else ():
        found = stored(claim)
        if found:
            figure(claim, found.get("full", found.get("small"))["rows"])
    PAGE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
