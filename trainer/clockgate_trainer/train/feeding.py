"""How a run's data is fed: its arrangement by the flags, how many steps it takes, and what a person is told of both."""

from collections.abc import Iterator

from clockgate_trainer.data.feed import Arrangement, Feed
from clockgate_trainer.data.order import Split, samples_in_steps, steps_for_epochs, steps_for_samples
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.train.parts import Corpus


def make_feed(settings: Settings, corpus: Corpus) -> Feed:
    """The feed of these flags. Raises ConfigError when a sample is longer than a packed row."""
    feed = Feed(
        corpus.data,
        corpus.pad_id,
        Arrangement(
            seed=settings.order_seed,
            group_by_length=settings.group_by_length and not settings.packing,
            pack_length=settings.packed_tokens,
        ),
    )
    feed.rows_per_epoch()
    return feed


def count_steps(settings: Settings, feed: Feed, split: Split) -> int:
    """Optimizer steps of the run.

    With packing a step sees many more samples than the same flags give without it, so --max_steps is taken to mean the
    samples that it would see unpacked, unless --keep_steps.
    """
    rows, samples = feed.rows_per_epoch(), len(feed.data)
    if settings.num_train_epochs is not None:
        return steps_for_epochs(settings.num_train_epochs, rows, split)
    if not settings.packing or settings.keep_steps:
        return settings.max_steps
    return steps_for_samples(samples_in_steps(settings.max_steps, samples, split), samples, rows, split)


def describe(settings: Settings, feed: Feed, split: Split, total_steps: int) -> Iterator[str]:
    """What a step is made of, one sentence each."""
    rows, samples = feed.rows_per_epoch(), len(feed.data)
    made_of = f"{split.micro_batch} in a micro-batch x {split.accumulation} micro-batches x {split.world} ranks"
    tokens = int(feed.data.lengths.sum())
    per_step = min(split.rows_per_step, rows) / rows
    width = feed.arrangement.pack_length
    what = "rows" if width is None else "packed rows"
    yield f"{rows} {what}; an optimizer step takes {split.rows_per_step} of them ({made_of}); {total_steps} steps"
    yield f"a full step holds about {samples * per_step:,.0f} samples and {tokens * per_step:,.0f} tokens"
    if width is not None:
        yield f"packing: {samples} samples fill {rows} rows of {width} tokens to {tokens / (rows * width):.1%}"
        if total_steps != settings.max_steps and settings.num_train_epochs is None:
            seen = samples_in_steps(settings.max_steps, samples, split)
            yield (
                f"--max_steps {settings.max_steps} stands for {seen} samples without packing, which {total_steps} "
                "packed steps hold (--keep_steps takes it as it is); --save_steps, --logging_steps and --warmup_steps "
                "count packed steps"
            )
