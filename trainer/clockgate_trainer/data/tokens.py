"""Examples to token rows with marks of what is learned. The tokenizer arrives as functions; no library is known here.

A pair is begin mark + prompt, cut to `source_max_len`, then answer + end mark, cut to `target_max_len` with the end
mark kept: a model that never sees the mark never learns to stop. A chat is laid out by its template and cut behind
`source_max_len + target_max_len` tokens; an answer that is cut there ends in the end mark too.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from clockgate_trainer.data.formats import Chat, Example, Pair
from clockgate_trainer.data.record import BadRowError, Fault, Kind

IGNORED = -100
_CHUNK = 1000

Encode = Callable[[list[str]], list[list[int]]]
# Token ids of a chat, and for each whether the assistant says it.
LayOut = Callable[[Chat], tuple[list[int], list[bool]]]


@dataclass(frozen=True)
class Lengths:
    """How long rows may be, in tokens, and whether prompts are learned too."""

    source_max_len: int
    target_max_len: int
    train_on_source: bool = False

    @property
    def longest(self) -> int:
        """The most tokens that a row can have."""
        return self.source_max_len + self.target_max_len


@dataclass(frozen=True)
class Marks:
    """The tokenizer's begin mark (None when it has none), end mark, and the id to pad with."""

    begin: int | None
    end: int
    pad: int


@dataclass(frozen=True)
class Coder:
    """All that turns an example into tokens. `lay_out` is None where no chats are expected."""

    encode: Encode
    marks: Marks
    lengths: Lengths
    lay_out: LayOut | None = None


@dataclass(frozen=True)
class TokenRow:
    """One row: token ids (int32) and for each whether the loss sees it.

    The first token of a row is never predicted, so it is never learned.
    """

    input_ids: NDArray[np.int32]
    learned: NDArray[np.bool_]

    @staticmethod
    def after(input_ids: Sequence[int], masked: int) -> "TokenRow":
        """The row of which all but the first `masked` tokens are learned."""
        learned = np.arange(len(input_ids)) >= max(masked, 1)
        return TokenRow(np.asarray(input_ids, np.int32), learned)

    @property
    def label_tokens(self) -> int:
        """Tokens that the loss is computed on."""
        return int(self.learned.sum())

    @property
    def labels(self) -> NDArray[np.int32]:
        """One label per token, IGNORED where nothing is learned."""
        return np.where(self.learned, self.input_ids, np.int32(IGNORED))


@dataclass(frozen=True)
class Coded:
    """An example as tokens. `prompt_tokens` and `answer_tokens` are counted before anything is cut."""

    row: TokenRow
    line: int
    prompt_tokens: int
    answer_tokens: int
    cut_prompt: bool
    cut_answer: bool


def code(found: Iterable[Example | Fault], coder: Coder) -> Iterator[Coded | Fault]:
    """Token rows and faults in the order of `found`, which is read in pieces.

    A row that would teach nothing is a fault in place of the row; one that teaches too little comes with a warning.
    """
    rest = iter(found)
    while chunk := list(islice(rest, _CHUNK)):
        pairs = [item for item in chunk if isinstance(item, Pair)]
        prompts = iter(coder.encode([pair.prompt for pair in pairs]) if pairs else [])
        answers = iter(coder.encode([pair.answer for pair in pairs]) if pairs else [])
        for item in chunk:
            if isinstance(item, Pair):
                yield from _pair(item, next(prompts), next(answers), coder)
            elif isinstance(item, Chat):
                yield from _chat(item, coder)
            else:
                yield item


class TokenData:
    """All rows of the data set, in file order. `fingerprint` identifies them to the last token.

    `lengths` and `label_counts` hold one number for each row, so that order and packing need not touch the rows.
    """

    def __init__(
        self,
        rows: Sequence[TokenRow],
        lengths: NDArray[np.int64],
        label_counts: NDArray[np.int64],
        largest_id: int,
        fingerprint: str,
    ) -> None:
        self.rows = rows
        self.lengths = lengths
        self.label_counts = label_counts
        self.largest_id = largest_id
        self.fingerprint = fingerprint

    def __len__(self) -> int:
        return len(self.rows)


def token_data(rows: Sequence[TokenRow]) -> TokenData:
    """Data of rows that are in memory; at least one."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(len(row.input_ids).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(row.input_ids).tobytes())
        digest.update(np.ascontiguousarray(row.learned).tobytes())
    return TokenData(
        tuple(rows),
        np.array([len(row.input_ids) for row in rows], np.int64),
        np.array([row.label_tokens for row in rows], np.int64),
        max(int(row.input_ids.max()) for row in rows),
        digest.hexdigest(),
    )


def _pair(pair: Pair, prompt: list[int], answer: list[int], coder: Coder) -> Iterator[Coded | Fault]:
    marks, lengths = coder.marks, coder.lengths
    source = ([] if marks.begin is None else [marks.begin]) + prompt
    kept = source[: lengths.source_max_len]
    learned = [*answer[: lengths.target_max_len - 1], marks.end]
    row = TokenRow.after([*kept, *learned], 0 if lengths.train_on_source else len(kept))
    if row.label_tokens < 1:
        yield Fault(pair.line, Kind.NOTHING_TO_LEARN, "it leaves no token to learn: prompt and answer are both empty")
        return
    if len(learned) == 1 and answer:
        text = (
            f"nothing of the answer is left: --target_max_len {lengths.target_max_len} has room for the end mark alone"
        )
        yield Fault(pair.line, Kind.LOST_ANSWER, text)
    cut_prompt = len(source) > lengths.source_max_len
    cut_answer = len(answer) > lengths.target_max_len - 1
    yield Coded(row, pair.line, len(source), len(answer) + 1, cut_prompt, cut_answer)


def _chat(chat: Chat, coder: Coder) -> Iterator[Coded | Fault]:
    if coder.lay_out is None:
        raise TypeError("a chat needs a coder that lays it out")
    try:
        ids, said = coder.lay_out(chat)
    except BadRowError as bad:
        yield bad.fault(chat.line)
        return
    limit = coder.lengths.longest
    whole = np.array(said, np.bool_)
    answer_tokens = int(whole.sum())
    learned = whole[:limit].copy()
    kept = np.array(ids[:limit], np.int32)
    if len(ids) > limit and learned[-1]:
        kept[-1] = coder.marks.end
    # Prompts behind the last answer that is left teach nothing.
    end = int(np.flatnonzero(learned)[-1]) + 1 if learned.any() else 0
    learned[:1] = False
    if coder.lengths.train_on_source:
        learned[1:end] = True
    row = TokenRow(kept[:end], learned[:end])
    if row.label_tokens < 1:
        text = "the chat template marks nothing as said by the assistant"
        if answer_tokens:
            text = (
                f"its first answer begins behind token {limit} (--source_max_len + --target_max_len): all of it is cut"
            )
        yield Fault(chat.line, Kind.NOTHING_TO_LEARN, text)
        return
    cut = bool(whole[limit:].any())
    yield Coded(row, chat.line, len(ids) - answer_tokens, answer_tokens, len(ids) > limit and not cut, cut)
