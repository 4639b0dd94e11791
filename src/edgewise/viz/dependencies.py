"""A dependency tree as arcs above the words of its sentence."""

from edgewise.data.trees import DependencyTree
from edgewise.viz.svg import INK, Picture, arrow, clipped, document, number, tag, text, width

WORD, SMALL, GAP, STEP, EDGE = 15.0, 10.0, 18.0, 26.0, 16.0
LONGEST = 40  # characters of a word that are drawn
LINE = "#0969da"


def draw_tree(tree: DependencyTree) -> Picture:
    """Arcs from heads to the words that depend on them, with their relations.

    >>> tree = DependencyTree(["it", "rains"], ["_", "_"], [2, 0], ["expl", "root"])
    >>> draw_tree(tree).svg.count("<path")
    2
    """
    words = [clipped(word, LONGEST) for word in tree.words]
    relations = [clipped(relation, LONGEST) for relation in tree.relations]
    wide = [max(width(a, WORD), width(b, SMALL)) for a, b in zip(words, relations, strict=True)]
    centres, right = [], EDGE
    for own in wide:
        centres.append(right + own / 2)
        right += own + GAP
    heights = _heights(tree.heads)
    base = EDGE + SMALL + STEP * (max(heights, default=0) + 1)
    parts = [text(x, base + WORD, word, WORD) for x, word in zip(centres, words, strict=True)]
    for at, (head, level) in enumerate(zip(tree.heads, heights, strict=True)):
        top = base - STEP * level
        start = centres[head - 1] if head else centres[at]
        parts += _arc(start, centres[at], base, top, relations[at])
    return Picture(document(parts, right - GAP + EDGE, base + 2 * WORD + EDGE, " ".join(words)))


def _heights(heads: list[int]) -> list[int]:
    """A level for each arc, above all arcs inside it; the root's is the highest."""
    spans = {at: (min(at, h - 1), max(at, h - 1)) for at, h in enumerate(heads) if h}
    found = [0] * len(heads)
    for at in sorted(spans, key=lambda k: spans[k][1] - spans[k][0]):
        first, last = spans[at]
        inside = [found[k] for k, (a, b) in spans.items() if first <= a and b <= last and k != at]
        found[at] = 1 + max(inside, default=0)
    most = max(found, default=0)
    return [level if heads[at] else most + 1 for at, level in enumerate(found)]


def _arc(start: float, end: float, base: float, top: float, relation: str) -> list[str]:
    side = 4.0 if end > start else -4.0
    if start == end:  # of the root
        path = f"M{number(end)},{number(top)} L{number(end)},{number(base)}"
    else:
        start, end = start + side, end - side
        bend = f"{number(start)},{number(top)} {number(end)},{number(top)}"
        path = f"M{number(start)},{number(base)} C{bend} {number(end)},{number(base)}"
    middle = top if start == end else base - 0.75 * (base - top)
    label = tag(
        "rect", x=(start + end) / 2 - width(relation, SMALL) / 2, y=middle - SMALL / 2,
        width=width(relation, SMALL), height=SMALL, fill="#ffffff",
    )  # fmt: skip
    return [
        tag("path", d=path, fill="none", stroke=LINE, stroke_width=1.2),
        arrow((end, base + 3), (0, 1), LINE, 5),
        label,
        text((start + end) / 2, middle, relation, SMALL, fill=INK),
    ]
