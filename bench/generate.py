"""SmolLM2-135M token after token, in float32 on a CPU: rules with their cache against
`transformers` with its own, the same GGUF file, the same greedy tokens, one run."""

import os
import time

import torch
from measure import machine, write
from transformers import AutoModelForCausalLM

from edgewise import zoo
from edgewise.decode import Following, greedy

PROMPTS = ("The capital of France is", "Once upon a time there was a little", "Water boils when")
TOKENS, ROUNDS = 48, 3


def main() -> None:
    path = zoo.fetch("smollm2-135m-instruct")
    ours = zoo.from_pretrained(path)
    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name).eval()
    model, rows, same = ours.model, [], True
    for prompt in PROMPTS:
        ids = torch.tensor([ours.tokenizer.encode(prompt).ids])

        def rules(ids: torch.Tensor = ids) -> torch.Tensor:
            growing = model.growing(256)
            return greedy(Following(growing, "token"), ids, most=TOKENS)

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
        taken: dict[str, list[float]] = {"ours": [], "theirs": []}
        for _ in range(ROUNDS):
            for name, run in (("ours", rules), ("theirs", peer)):
                start = time.perf_counter()
                run()
                taken[name].append(time.perf_counter() - start)
        theirs.generation_config.eos_token_id = free
        rows.append({name: round(TOKENS / min(times), 2) for name, times in taken.items()})
        print(f"{prompt!r}: ours {rows[-1]['ours']} tokens/s, transformers {rows[-1]['theirs']}")
    ratio = sum(r["ours"] for r in rows) / sum(r["theirs"] for r in rows)
    print(f"{ratio:.2f}× as fast (bar: 1×); the same tokens: {same}; {machine()}")
    result = {"tokens_per_second": rows, "times": round(ratio, 2), "same_tokens": same}
    write("generate", {**result, "tokens": TOKENS, "load": round(os.getloadavg()[0], 1)})


if __name__ == "__main__":
    main()
