"""What a model answered, and what is needed of one that answers. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Answer:
    """`text` has no marks; `tokens` counts the end mark too. `ended`: it stopped by itself, not at --max_new_tokens."""

    text: str
    with_prompt: str
    tokens: int
    ended: bool


class Speaker(Protocol):
    """A model that answers."""

    def answer(
        self, prompts: Sequence[Sequence[int]], number: int, go_on: Callable[[], bool] | None = None
    ) -> list[Answer]:
        """Answers to the batch with this number, in its order; cut short when `go_on` says no. Raises ConfigError."""

    def text(self, ids: Sequence[int]) -> str:
        """Token ids as a person reads them, without marks."""
