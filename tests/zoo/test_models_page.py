"""The page of models says how many rules each has."""

import re
from pathlib import Path

from edgewise import zoo
from edgewise.cli.models import rules_of

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
ROW = re.compile(r"^\| (.*?) \(`zoo\.(\w+)`\) \| (\d+) ", re.M)
CONFIGS = {
    "RoBERTa": zoo.bert.ROBERTA,
    "DistilBERT": zoo.bert.DISTILBERT,
    "MPNet": zoo.bert.MPNET,
    "Sparse Transformer": zoo.sparse.Config(layers=2),  # its two kinds of layers, each once
}


def test_the_page_counts_the_rules_of_every_model():
    rows = ROW.findall(PAGE.read_text())
    assert len(rows) > 20
    assert {name for _, name, _ in rows} == {m.__name__.rpartition(".")[2] for m in zoo.MODELS}
    counted = {}
    for title, name, count in rows:
        module = getattr(zoo, name)
        counted[title] = int(count), rules_of(module.program(CONFIGS.get(title, module.Config())))
    assert {title: both for title, both in counted.items() if both[0] != both[1]} == {}
