"""How text is generated: qlora.py's generation flags with their defaults, and which of them act together. Pure.

Contrastive search (--penalty_alpha) and grouped beams (--num_beam_groups, --diversity_penalty) are refused whenever
they are asked for: transformers 5 has moved both out of the library into code that it would fetch from the hub and run.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from clockgate_trainer.errors import UsageError
from clockgate_trainer.flags.flag import declare

GROUP = "generation"
_MOVED = (
    "transformers 5 has moved {what} out of the library into code that it would fetch from the hub and run. Leave it "
    "out, or use {instead}"
)
_SAMPLING = ("temperature", "top_k", "top_p", "typical_p")


@dataclass(frozen=True)
class GenerationFlags:
    """The generation flags of `Settings`, which has them all."""

    max_new_tokens: int = declare(256, GROUP, "tokens of an answer at most", low=1)
    min_new_tokens: int | None = declare(None, GROUP, "tokens of an answer at least", low=0, unset="none")
    do_sample: bool = declare(False, GROUP, "draw tokens at random by their probability, instead of the likeliest one")
    num_beams: int = declare(1, GROUP, "answers that are followed at once, of which the likeliest is given", low=1)
    num_beam_groups: int = declare(1, GROUP, "1: no groups of beams, which transformers 5 no longer has", low=1)
    penalty_alpha: float | None = declare(
        None, GROUP, "0: no contrastive search, which transformers 5 no longer has", low=0, unset="0"
    )
    use_cache: bool = declare(True, GROUP, "keep keys and values of earlier tokens (off: slower, the same text)")
    temperature: float = declare(1.0, GROUP, "with --do_sample: below 1 sharper, above 1 flatter", low=1e-6, high=1e6)
    top_k: int = declare(50, GROUP, "with --do_sample: draw from the K likeliest tokens; 0: from all", low=0)
    top_p: float = declare(
        1.0, GROUP, "with --do_sample: draw from the likeliest tokens that make up this share", low=0, high=1
    )
    typical_p: float = declare(
        1.0, GROUP, "with --do_sample: draw from the most typical tokens that make up this share", low=1e-6, high=1
    )
    diversity_penalty: float = declare(0.0, GROUP, "0: there are no groups of beams to tell apart", low=0)
    repetition_penalty: float = declare(
        1.0, GROUP, "above 1: tokens that were there before are less likely", low=1e-6, high=1e6
    )
    length_penalty: float = declare(
        1.0, GROUP, "with --num_beams above 1: above 0 longer answers win", low=-1e6, high=1e6
    )
    no_repeat_ngram_size: int = declare(0, GROUP, "no sequence of N tokens is there twice; 0: any may be", low=0)


def check_generation(flags: GenerationFlags) -> None:
    """Refuse what no supported transformers does, and what contradicts itself. Raises UsageError."""
    if flags.penalty_alpha:
        problem = _MOVED.format(what="contrastive search", instead="--do_sample or --num_beams")
        raise UsageError(f"--penalty_alpha {flags.penalty_alpha:g} is not supported: {problem}")
    for name, value, neutral in (
        ("num_beam_groups", flags.num_beam_groups, 1),
        ("diversity_penalty", flags.diversity_penalty, 0),
    ):
        if value != neutral:
            problem = _MOVED.format(what="grouped beams", instead="--num_beams alone")
            raise UsageError(f"--{name} {value:g} is not supported: {problem}")
    if (flags.min_new_tokens or 0) > flags.max_new_tokens:
        raise UsageError(
            f"--min_new_tokens is {flags.min_new_tokens}: wanted at most --max_new_tokens, {flags.max_new_tokens}"
        )


def generation_notices(flags: GenerationFlags) -> Iterator[str]:
    """Flags that are given and change nothing, one sentence each. For whoever generates."""
    defaults = GenerationFlags()
    if not flags.do_sample:
        for name in _SAMPLING:
            if getattr(flags, name) != getattr(defaults, name):
                yield f"--{name} has no effect without --do_sample"
    if flags.num_beams == 1 and flags.length_penalty != defaults.length_penalty:
        yield "--length_penalty has no effect without --num_beams"
