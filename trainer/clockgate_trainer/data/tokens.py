"""Text pairs to token rows with labels. The tokenizer arrives as a function; nothing here knows a library.

A row is begin mark + prompt, cut to `source_max_len`, then answer + end mark, cut to `target_max_len` with the end mark
kept: a model that never sees the mark never learns to stop.
"""

import hashlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clockgate_trainer.data.formats import Pair
from clockgate_trainer.errors import ConfigError

IGNORED = -100
_CHUNK = 1000

Encode = Callable[[list[str]], list[list[int]]]


@dataclass(frozen=True)
class Lengths:
    """How long rows may be, in tokens, and whether prompts are learned too."""

    source_max_len: int
    target_max_len: int
    train_on_source: bool = False


@dataclass(frozen=True)
class Marks:
    """The tokenizer's begin mark (None when it has none), end mark, and the id to pad with."""

    begin: int | None
    end: int
    pad: int


@dataclass(frozen=True)
class TokenRow:
    """One row: `input_ids`, of which the first `masked` are not learned. `label_tokens` counts what the loss sees.

    The first token of a row is never predicted, so it is no label even where nothing is masked.
    """

    input_ids: tuple[int, ...]
    masked: int

    @property
    def label_tokens(self) -> int:
        """Tokens that the loss is computed on."""
        return len(self.input_ids) - max(self.masked, 1)

    @property
    def labels(self) -> tuple[int, ...]:
        """One label per token, IGNORED where nothing is learned."""
        return (IGNORED,) * self.masked + self.input_ids[self.masked :]


@dataclass(frozen=True)
class TokenData:
    """All rows of the data set, in file order. `fingerprint` identifies them to the last token."""

    rows: tuple[TokenRow, ...]
    cut_prompts: int
    cut_answers: int
    fingerprint: str

    @property
    def largest_id(self) -> int:
        """The largest token id in use."""
        return max(max(row.input_ids) for row in self.rows)


def tokenize(pairs: Sequence[Pair], encode: Encode, marks: Marks, lengths: Lengths) -> TokenData:
    """Tokenize all pairs. Raises ConfigError when a row is left without anything to learn."""
    rows: list[TokenRow] = []
    cut_prompts = cut_answers = 0
    for start in range(0, len(pairs), _CHUNK):
        chunk = pairs[start : start + _CHUNK]
        prompts = encode([pair.prompt for pair in chunk])
        answers = encode([pair.answer for pair in chunk])
        for pair, prompt, answer in zip(chunk, prompts, answers, strict=True):
            source = ([] if marks.begin is None else [marks.begin]) + prompt
            cut_prompts += len(source) > lengths.source_max_len
            cut_answers += len(answer) > lengths.target_max_len - 1
            rows.append(_row(source, answer, marks, lengths, pair.line))
    return TokenData(tuple(rows), cut_prompts, cut_answers, _fingerprint(rows))


def _row(source: list[int], answer: list[int], marks: Marks, lengths: Lengths, line: int) -> TokenRow:
    kept = source[: lengths.source_max_len]
    learned = [*answer[: lengths.target_max_len - 1], marks.end]
    row = TokenRow((*kept, *learned), 0 if lengths.train_on_source else len(kept))
    if row.label_tokens < 1:
        raise ConfigError(
            f"the row of line {line} leaves no token to learn: prompt and answer are both empty. Remove it"
        )
    return row


def _fingerprint(rows: Sequence[TokenRow]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(array("q", (len(row.input_ids), row.masked, *row.input_ids)).tobytes())
    return digest.hexdigest()
