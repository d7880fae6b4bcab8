"""How far two models' logits are apart on the same text."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

# Articles 1, 3 and 19 of the Universal Declaration of Human Rights, and a prompt of the Alpaca form.
SAMPLES = (
    "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience and "
    "should act towards one another in a spirit of brotherhood. Everyone has the right to life, liberty and security "
    "of person.",
    "Everyone has the right to freedom of opinion and expression; this right includes freedom to hold opinions "
    "without interference and to seek, receive and impart information and ideas through any media and regardless of "
    "frontiers.",
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\nName three primary colours.\n\n### Response: The three primary colours are red, yellow, blue.",
)
_LONGEST = 512


@dataclass(frozen=True)
class Difference:
    """Between two models over `tokens` places: largest and mean absolute difference of a logit, and the share of
    places where both find the same token likeliest. `spread` is the first model's standard deviation of a logit.
    """

    largest: float
    mean: float
    same_choice: float
    spread: float
    tokens: int


def logits_of(
    model: Any, tokenizer: Any, texts: Sequence[str], *, autocast: torch.dtype | None = None
) -> list[torch.Tensor]:
    """Logits for each text, tokens x vocabulary, float32 on the CPU."""
    device = model.get_input_embeddings().weight.device
    found = []
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        begin = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
        given = torch.tensor([[*begin, *ids][:_LONGEST]], device=device)
        cast = nullcontext() if autocast is None else torch.autocast(device.type, autocast)
        with torch.inference_mode(), cast:
            found.append(model(input_ids=given, use_cache=False).logits[0].float().cpu())
    return found


def difference(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> Difference:
    """Of the same texts' logits. A logit that is no number makes the largest difference infinite."""
    one, other = torch.cat(list(first)), torch.cat(list(second))
    gap = (one - other).abs()
    largest = float(gap.max())
    return Difference(
        largest=largest if torch.isfinite(gap).all() else float("inf"),
        mean=float(gap.mean()),
        same_choice=float((one.argmax(-1) == other.argmax(-1)).float().mean()),
        spread=float(one.std()),
        tokens=one.shape[0],
    )
