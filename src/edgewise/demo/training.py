"""A moment of training: every word learns to hear the word it belongs to."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from edgewise.demo.model import attention, names, places, tokens
from edgewise.demo.sentences import LONGEST, WORDS, Sentence, corpus
from edgewise.language import R

STEPS, BATCH, RATE = 80, 8, 0.02
SURE = 0.9  # of its attention a word gives to the word it belongs to; the rest goes to all alike


def loss(solution: Any, sentences: list[Sentence]) -> Tensor:
    """Cross entropy between the attention of every word and where it should go."""
    terms = []
    for s, sentence in enumerate(sentences):
        columns = [WORDS.index(word) for word in sentence.words]
        for i, j in enumerate(sentence.belongs):
            share = solution[R.attention(s, i)][columns].log()
            terms.append(-SURE * share[j] - (1 - SURE) * share.mean())
    return torch.stack(terms).mean()


def right(solution: Any, sentences: list[Sentence]) -> float:
    """How many words give the most attention to the word they belong to, as a fraction."""
    found = [
        int(solution[R.attention(s, i)].argmax()) == WORDS.index(sentence.words[j])
        for s, sentence in enumerate(sentences)
        for i, j in enumerate(sentence.belongs)
    ]
    return sum(found) / len(found)


def train(weights: dict[str, Tensor]) -> Iterator[float]:
    """Train the weights in place; yield the loss of every step."""
    program, background = attention(), places(LONGEST) + names()
    optimiser = torch.optim.Adam(weights.values(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    sentences = corpus(STEPS * BATCH, seed=0)
    for start in range(0, len(sentences), BATCH):
        batch = sentences[start : start + BATCH]
        now = loss(program.solve(tokens(batch) + background, weights=weights), batch)
        optimiser.zero_grad()
        now.backward()
        optimiser.step()
        schedule.step()
        yield now.item()
