"""A moment of training: every word learns to hear the word it belongs to."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.demo.model import attention, names, places, tokens
from edgewise.demo.sentences import LONGEST, WORDS, Sentence, corpus
from edgewise.language import R

STEPS, BATCH, RATE = 80, 8, 0.02
SURE = 0.9  # of its attention a word gives to the word it belongs to; the rest goes to all alike


def compiled() -> Any:
    """The attention program as a torch module."""
    return attention().compile(R.attention, seed=0, dtype=torch.float64)


def grounded(model: Any, sentences: Sequence[Sentence]) -> Any:
    """Joins and layouts for these sentences."""
    return model.ground(facts=tokens(sentences) + places(LONGEST) + names())


def aims(sentences: Sequence[Sentence]) -> Tensor:
    """Where the attention of every word should go: a row of shares for each, in key order."""
    rows = []
    for sentence in sentences:
        columns = [WORDS.index(word) for word in sentence.words]
        for j in sentence.belongs:
            row = torch.zeros(len(WORDS), dtype=torch.float64)
            row[columns] = (1 - SURE) / len(columns)
            row[columns[j]] += SURE
            rows.append(row)
    return torch.stack(rows)


def right(model: Any, sentences: Sequence[Sentence]) -> float:
    """How many words give the most attention to the word they belong to, as a fraction."""
    given = model(grounded(model, sentences)).data
    return (given.argmax(1) == aims(sentences).argmax(1)).double().mean().item()


def train(model: Any) -> Iterator[float]:
    """Train the model in place; yield the loss of every step."""
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    sentences = corpus(STEPS * BATCH, seed=0)
    for start in range(0, len(sentences), BATCH):
        batch = sentences[start : start + BATCH]
        given = model(grounded(model, batch)).data
        loss = -(aims(batch) * given.clamp_min(1e-12).log()).sum(1).mean()  # cross entropy
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        yield loss.item()
