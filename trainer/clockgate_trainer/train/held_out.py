"""The data that a run is evaluated on, and never trained on."""

from collections.abc import Callable, Sequence

from clockgate_trainer.data.mixture import counts_of
from clockgate_trainer.data.source import Source, open_eval_split, open_shares
from clockgate_trainer.data.split import left_to_evaluate
from clockgate_trainer.data.store import Store, data_of
from clockgate_trainer.data.tokens import Coder, TokenData
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.evaluation.mmlu_source import read_questions
from clockgate_trainer.evaluation.questions import Questions, code_questions
from clockgate_trainer.flags.table import Settings


def open_apart(settings: Settings) -> list[Source]:
    """Sets of rows to evaluate on beside the training data: those of --eval_dataset, else the split `eval` that a hub
    set has of its own. None of them when no rows are wanted, or they are held out of the training data.

    Raises ConfigError.
    """
    if not settings.wants_rows:
        return []
    cache_dir, token = settings.cache_dir, settings.use_auth_token or None
    if settings.eval_dataset is None:
        own = open_eval_split(settings.dataset, settings.dataset_format, cache_dir=cache_dir, token=token)
        return [] if own is None else [own]
    opened = open_shares(
        settings.eval_dataset, settings.dataset_format, cache_dir=cache_dir, token=token, flag="--eval_dataset"
    )
    weighted = next((share.name for share, _ in opened if share.weight is not None), None)
    if weighted is not None:
        raise ConfigError(f"--eval_dataset gives {weighted} a weight: every row is evaluated once; leave weights out")
    return [source for _, source in opened]


def rows_apart(settings: Settings, sources: Sequence[Source], store_of: Callable[[Source], Store]) -> TokenData:
    """All rows of `sources`, the first --max_eval_samples of them."""
    stores = [store_of(source) for source in sources]
    counts = counts_of([store.summary.rows for store in stores], None, settings.max_eval_samples)
    return data_of([(store, range(count)) for store, count in zip(stores, counts, strict=True) if count])


def rows_held_out(settings: Settings, stores: Sequence[Store], held: int) -> TokenData:
    """The rows that `held` rows held out of the training data are. Raises ConfigError when that would be all."""
    sizes = [store.summary.rows for store in stores]
    if not 0 < held < sum(sizes):
        raise ConfigError(
            f"--eval_dataset_size is {held} and {settings.dataset} has {sum(sizes)} rows: wanted 1 or more, and fewer "
            "than there are, to evaluate on; or give --eval_dataset"
        )
    kept = left_to_evaluate(sizes, held, settings.max_eval_samples)
    return data_of([(store, rows) for store, rows in zip(stores, kept, strict=True) if rows])


def load_questions(settings: Settings, coder: Coder) -> tuple[Questions | None, list[str]]:
    """The questions of --do_mmlu_eval, and what a person should know of them. Raises ConfigError."""
    if not settings.do_mmlu_eval:
        return None, []
    longest = settings.mmlu_source_max_len
    found = read_questions(settings)
    questions = code_questions(found, coder.encode, coder.marks, longest=longest, split=settings.mmlu_split)
    subjects = len(set(questions.subjects))
    notes = [f"evaluation: {len(questions.rows)} questions of {subjects} subjects ({settings.mmlu_dataset})"]
    if questions.cut:
        notes.append(f"{questions.cut} of them lose their beginning, to be of --mmlu_source_max_len {longest} tokens")
    return questions, notes
