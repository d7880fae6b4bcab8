"""qlora.py's generation flags: defaults, and what is refused before a run."""

from dataclasses import asdict

import pytest
from clockgate_trainer.errors import UsageError
from clockgate_trainer.flags.generation import GenerationFlags, generation_notices
from clockgate_trainer.flags.parse import parse

# Defaults of qlora.py, from its GenerationArguments.
QLORA = {
    "max_new_tokens": 256,
    "min_new_tokens": None,
    "do_sample": False,
    "num_beams": 1,
    "num_beam_groups": 1,
    "penalty_alpha": None,
    "use_cache": True,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "diversity_penalty": 0.0,
    "repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "no_repeat_ngram_size": 0,
}


def test_generation_flags_and_their_defaults_are_those_of_qlora() -> None:
    assert asdict(GenerationFlags()) == QLORA


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--penalty_alpha 0.6 --top_k 4", ("--penalty_alpha 0.6", "contrastive search", "--do_sample")),
        ("--num_beams 4 --num_beam_groups 2", ("--num_beam_groups 2", "--num_beams alone")),
        ("--diversity_penalty 0.5", ("--diversity_penalty 0.5", "grouped beams")),
        ("--min_new_tokens 300", ("--min_new_tokens is 300", "--max_new_tokens, 256")),
        ("--max_new_tokens 0", ("--max_new_tokens", "1 or more")),
        ("--generation_max_length 64", ("--generation_max_length", "--max_new_tokens")),
    ],
)
def test_generation_that_cannot_be_is_refused_before_any_weights_load(words: str, named: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        parse(words.split())
    assert all(part in str(caught.value) for part in named)


def test_neutral_values_of_what_is_gone_are_accepted() -> None:
    assert parse(["--penalty_alpha", "0", "--num_beam_groups", "1", "--diversity_penalty", "0.0"]).num_beams == 1


def test_flags_without_effect_are_told() -> None:
    told = list(generation_notices(parse(["--temperature", "0.7", "--top_p", "0.9", "--length_penalty", "2"])))
    assert [line.split()[0] for line in told] == ["--temperature", "--top_p", "--length_penalty"]
    assert not list(generation_notices(parse(["--do_sample", "--temperature", "0.7"])))


def test_beams_by_the_seq2seq_trainers_name() -> None:
    assert parse(["--generation_num_beams", "3"]).num_beams == 3
