"""SmolLM2-135M token after token, in float32 on a CPU: rules with their cache against
`transformers` with its own, the same GGUF file, the same greedy tokens, one run, in turn.

Every token reads all weights once; the time that takes alone, 538 MB summed, is the floor.
"""

import os
import time
from collections.abc import Callable

import torch
from measure import machine, write
from transformers import AutoModelForCausalLM

from edgewise import zoo
from edgewise.decode import CachedDecoder, greedy

PROMPTS = ("The capital of France is", "Once upon a time there was a little", "Water boils when")
TOKENS, ROUNDS = 48, 3
Run = Callable[[], torch.Tensor]


def floor(model: torch.nn.Module) -> float:
    """Seconds to read all weights once, the least of several times."""
    weights, taken = [p.detach() for p in model.parameters()], []
    for _ in range(9):
        start = time.perf_counter()
        for weight in weights:
            weight.sum()
        taken.append(time.perf_counter() - start)
    return min(taken)


def timed(runs: dict[str, Run]) -> dict[str, dict[str, float]]:
    """Tokens per second on the clock and of process time, the most of several rounds in turn."""
    clock, used = ({name: [] for name in runs} for _ in range(2))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start, before = time.perf_counter(), time.process_time()
            run()
            used[name].append(time.process_time() - before)
            clock[name].append(time.perf_counter() - start)
    return {
        "clock": {name: round(TOKENS / min(times), 2) for name, times in clock.items()},
        "process": {name: round(TOKENS / min(times), 2) for name, times in used.items()},
    }


def main() -> None:
    path = zoo.fetch("smollm2-135m-instruct")
    ours = zoo.from_pretrained(path)
    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name).eval()
    model, rows, same = ours.model, [], True
    for prompt in PROMPTS:
        ids = torch.tensor([ours.tokenizer.encode(prompt).ids])

        def rules(ids: torch.Tensor = ids) -> torch.Tensor:
            growing = model.growing(256)
            return greedy(CachedDecoder(growing, "token"), ids, most=TOKENS)

        def peer(ids: torch.Tensor = ids) -> torch.Tensor:
            found = theirs.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                min_new_tokens=TOKENS,
                max_new_tokens=TOKENS,
                do_sample=False,
                pad_token_id=0,
            )
            return found[:, ids.shape[1] :]

        free = theirs.generation_config.eos_token_id
        theirs.generation_config.eos_token_id = None  # both go on to the last token
        same &= torch.equal(rules(), peer())
        rows.append(timed({"ours": rules, "theirs": peer}))
        theirs.generation_config.eos_token_id = free
        a, b = rows[-1]["clock"].values()
        print(
            f"{prompt!r}: ours {a} tokens/s, transformers {b}; process time {rows[-1]['process']}"
        )
    times = {
        kind: round(sum(r[kind]["ours"] for r in rows) / sum(r[kind]["theirs"] for r in rows), 2)
        for kind in ("clock", "process")
    }
    most, load = round(1 / floor(model), 1), round(os.getloadavg()[0], 1)
    print(f"reading the weights alone: {most} tokens/s; load {load}")
    print(f"{times['clock']}× as fast (bar: 1×); the same tokens: {same}; {machine()}")
    result = {"tokens_per_second": rows, "times": times, "floor_tokens_per_second": most}
    write("generate", {**result, "same_tokens": same, "tokens": TOKENS, "load": load})


if __name__ == "__main__":
    main()
