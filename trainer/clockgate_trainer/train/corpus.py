"""The training data of a run: data sets -> examples -> tokens, with the model's own tokenizer.

Everything that can be wrong with data is found here, before any weights load.
"""

from collections.abc import Iterator
from pathlib import Path

from clockgate_trainer.data.cache import cached, store_name
from clockgate_trainer.data.local import examples
from clockgate_trainer.data.mixture import counts_of, rows_of
from clockgate_trainer.data.record import Fault
from clockgate_trainer.data.source import Source, open_shares
from clockgate_trainer.data.split import left_to_train
from clockgate_trainer.data.store import MOST_FAULTS, VERSION, BadDataError, Store, data_of
from clockgate_trainer.data.tokenizer import load_tokenizer, make_coder, tokenizer_key
from clockgate_trainer.data.tokens import Coded, Coder, Lengths, code
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.held_out import load_questions, open_apart, rows_apart, rows_held_out
from clockgate_trainer.train.parts import Corpus, Unseen

_CACHE_FOLDER = ".tokens"
_TOLD_WARNINGS = 3


def load_corpus(settings: Settings) -> Corpus:
    """Read and tokenize, or open the tokens of an earlier start.

    Raises ConfigError that names file and line, or the tokenizer.
    """
    opened = open_shares(
        settings.dataset,
        settings.dataset_format,
        cache_dir=settings.cache_dir,
        token=settings.use_auth_token or None,
    )
    sources = [source for _, source in opened]
    tokenizer = load_tokenizer(settings)
    apart = open_apart(settings)
    chats = any(source.format == "chat" for source in (*sources, *apart))
    coder, key = make_coder(settings, tokenizer, chats=chats), tokenizer_key(tokenizer)
    # A set with an evaluation split of its own is trained on as a whole.
    held_out = settings.held_out_rows if settings.eval_dataset or not apart else 0
    # Rows are held out of all rows, before any limit.
    limit = None if held_out else settings.max_train_samples
    stores = [_store(settings, source, coder, key, limit) for source in sources]
    weights = [share.weight for share, _ in opened if share.weight is not None]
    left = left_to_train([store.summary.rows for store in stores], held_out)
    counts = counts_of([len(rows) for rows in left], weights or None, settings.max_train_samples)
    drawn = [
        [rows[row] for row in rows_of(settings.order_seed, place, len(rows), count, in_order=not weights)]
        for place, (rows, count) in enumerate(zip(left, counts, strict=True))
    ]
    notes = [note for source, store in zip(sources, stores, strict=True) for note in _notes(source, store, settings)]
    if held_out:
        notes.append(_held_out(held_out, sum(store.summary.rows for store in stores)))
    if len(sources) > 1:
        told = (f"{name.name} {len(rows)}" for name, rows in zip(sources, drawn, strict=True))
        notes.append(f"samples of an epoch by data set: {', '.join(told)}")
    if coder.marks.begin is None:
        notes.append("the tokenizer has no begin mark (bos_token): prompts start without one")
    parts = [(store, rows) for store, rows in zip(stores, drawn, strict=True) if rows]
    held = None
    if apart:
        held = rows_apart(settings, apart, lambda one: _store(settings, one, coder, key, settings.max_eval_samples))
    elif settings.wants_rows:
        held = rows_held_out(settings, stores, held_out)
    if held is not None:
        notes.append(f"evaluation: {len(held)} rows of {', '.join(source.name for source in apart or sources)}")
    questions, told_of_questions = load_questions(settings, coder)
    return Corpus(data_of(parts), coder.marks.pad, (*notes, *told_of_questions), held, questions)


def load_unseen(settings: Settings) -> tuple[Unseen, tuple[str, ...]]:
    """What is evaluated alone, with sentences for a person; training data are read only where it is held out of them.

    Raises ConfigError like `load_corpus`.
    """
    if settings.wants_rows and settings.eval_dataset is None:
        corpus = load_corpus(settings)
        return corpus.unseen, corpus.notes
    tokenizer = load_tokenizer(settings)
    apart = open_apart(settings)
    coder = make_coder(settings, tokenizer, chats=any(source.format == "chat" for source in apart))
    key, limit = tokenizer_key(tokenizer), settings.max_eval_samples
    held = rows_apart(settings, apart, lambda one: _store(settings, one, coder, key, limit)) if apart else None
    questions, notes = load_questions(settings, coder)
    return Unseen(coder.marks.pad, held, questions), tuple(notes)


def _held_out(wanted: int, rows: int) -> str:
    if wanted >= rows:
        return f"--eval_dataset_size {wanted} holds nothing out: the data has {rows} rows"
    return f"{wanted} of {rows} rows are held out of training, those that qlora.py would hold out"


def _store(settings: Settings, source: Source, coder: Coder, tokenizer: str, limit: int | None) -> Store:
    facts = {
        "version": VERSION,
        "content": source.content,
        "format": source.format,
        "rows": limit,
        "lengths": coder.lengths,
        "marks": coder.marks,
        "tokenizer": tokenizer,
    }
    folder = settings.token_cache or settings.output_dir / _CACHE_FOLDER

    def make() -> Iterator[Coded | Fault]:
        return code(examples(source.rows(), source.format, limit), coder)

    try:
        store = cached(folder, store_name(facts), make, subject=source.name)
    except BadDataError as bad:
        raise ConfigError(_refusal(source.name, bad.faults)) from None
    if settings.strict_data and store.summary.warning_count:
        raise ConfigError(_refusal(source.name, store.summary.warnings, store.summary.warning_count))
    return store


def _refusal(name: str, faults: tuple[Fault, ...], count: int | None = None) -> str:
    """`count` is that of all faults, where it is known; `faults` are the first of them."""
    rows = "1 bad row" if (count or len(faults)) == 1 else f"{count or len(faults)} bad rows"
    more = "; there may be more" if count is None and len(faults) == MOST_FAULTS else ""
    fix = f" (clockgate-train lint {name} --fix CLEAN.jsonl leaves them out)" if Path(name).exists() else ""
    head = f"the data set has {rows}{more}. Nothing was trained. Repair or remove{fix}:"
    return "\n  ".join([head, *(fault.at(name) for fault in faults)])


def _notes(source: Source, store: Store, settings: Settings) -> Iterator[str]:
    if source.note is not None:
        yield source.note
    summary, lengths = store.summary, Lengths(settings.source_max_len, settings.target_max_len)
    if summary.warning_count:
        shown = "; ".join(fault.at(source.name) for fault in summary.warnings[:_TOLD_WARNINGS])
        rest = "" if summary.warning_count <= _TOLD_WARNINGS else f"; and {summary.warning_count - _TOLD_WARNINGS} more"
        yield f"suspect rows, which --strict_data would refuse: {shown}{rest}"
    if summary.cut_prompts:
        limit = f"--source_max_len {settings.source_max_len}"
        yield f"{summary.cut_prompts} prompts of {source.name} are cut to {limit} tokens"
    if summary.cut_answers:
        limit = f"--target_max_len {settings.target_max_len}"
        yield f"{summary.cut_answers} answers of {source.name} are cut to {limit} tokens"
    if source.format == "chat" and (summary.cut_prompts or summary.cut_answers):
        yield f"a chat is cut behind {lengths.longest} tokens, the sum of both limits"
