"""Prompts as token ids, exactly as training writes the part of a row before its answer."""

from collections.abc import Sequence
from typing import Any

from clockgate_trainer.data.chat import chat_prompt
from clockgate_trainer.data.tokens import Coder
from clockgate_trainer.generation.prompts import Prompt


def encode_prompt(prompt: Prompt, tokenizer: Any, coder: Coder) -> list[int]:
    """Token ids, at least one, before any are cut. Raises BadRowError when the template refuses a chat."""
    ids = [] if coder.marks.begin is None else [coder.marks.begin]
    if prompt.messages:
        ids = chat_prompt(tokenizer, prompt.messages)
    elif prompt.text:
        ids = [*ids, *coder.encode([prompt.text])[0]]
    # A model needs something to go on from; training never predicts the first token of a row.
    return ids or [coder.marks.end]


def fit(ids: Sequence[int], prompt: Prompt, coder: Coder) -> list[int]:
    """The ids that the model is given: as many as training would have left of the prompt.

    A pair's prompt keeps its beginning, as in training. A dialogue keeps its end, which is what is to be answered, and
    its begin mark.
    """
    lengths = coder.lengths
    if prompt.messages is None and not prompt.dialogue:
        return list(ids[: lengths.source_max_len])
    if len(ids) <= lengths.longest:
        return list(ids)
    head = [ids[0]] if ids[0] == coder.marks.begin else []
    return [*head, *ids[len(ids) - lengths.longest + len(head) :]]
