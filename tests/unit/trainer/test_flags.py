import contextlib
import dataclasses
import string

import pytest
from clockgate_trainer.errors import ExitCode, UsageError
from clockgate_trainer.flags.help import help_text
from clockgate_trainer.flags.parse import notices, parse
from clockgate_trainer.flags.table import FLAGS, GROUPS, UNSUPPORTED, Settings
from hypothesis import given
from hypothesis import strategies as st

# Defaults of qlora.py, from its argument classes.
QLORA_DEFAULTS = {
    "model_name_or_path": "EleutherAI/pythia-12b",
    "trust_remote_code": False,
    "source_max_len": 1024,
    "target_max_len": 256,
    "dataset": "alpaca",
    "dataset_format": None,
    "max_train_samples": None,
    "train_on_source": False,
    "double_quant": True,
    "quant_type": "nf4",
    "bits": 4,
    "lora_r": 64,
    "lora_alpha": 16,
    "lora_dropout": 0.0,
    "optim": "paged_adamw_32bit",
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 16,
    "max_steps": 10000,
    "weight_decay": 0.0,
    "learning_rate": 2e-4,
    "max_grad_norm": 0.3,
    "gradient_checkpointing": True,
    "lr_scheduler_type": "constant",
    "warmup_ratio": 0.03,
    "logging_steps": 10,
    "save_strategy": "steps",
    "save_steps": 250,
    "save_total_limit": 40,
}


def refusal(*argv: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(argv)
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value)


def test_defaults_are_those_of_qlora() -> None:
    settings = dataclasses.asdict(parse([]))
    assert {name: settings[name] for name in QLORA_DEFAULTS} == QLORA_DEFAULTS


def test_every_flag_has_a_known_group_and_is_in_the_help() -> None:
    text = help_text()
    for flag in FLAGS:
        assert flag.group in GROUPS
        assert f"--{flag.name}" in text
    assert max(len(line) for line in text.splitlines()) <= 120


def test_no_name_is_declared_twice() -> None:
    names = [flag.name for flag in FLAGS] + [row.name for row in UNSUPPORTED]
    assert len(names) == len(set(names))


def test_value_may_follow_or_be_joined_by_an_equals_sign() -> None:
    assert parse(["--lora_r", "8"]).lora_r == 8
    assert parse(["--lora_r=8"]).lora_r == 8


def test_negative_number_is_a_value() -> None:
    assert parse(["--max_steps", "-1", "--num_train_epochs", "2"]).max_steps == -1


@pytest.mark.parametrize(("words", "wanted"), [([], True), (["true"], True), (["False"], False), (["0"], False)])
def test_switch_stands_alone_or_takes_a_word(words: list[str], wanted: bool) -> None:
    assert parse(["--bf16", *words, "--lora_r", "8"]).bf16 is wanted


def test_switch_that_is_on_can_be_turned_off_by_no() -> None:
    assert parse(["--no_double_quant"]).double_quant is False


def test_last_of_equal_flags_wins() -> None:
    assert parse(["--seed", "1", "--seed", "2"]).seed == 2


def test_alias_of_qlora_scripts_is_known() -> None:
    assert parse(["--use_auth"]).use_auth_token is True


def test_unknown_flag_is_refused_with_the_nearest_name() -> None:
    assert "did you mean --learning_rate?" in refusal("--learning_rat", "1e-4")


def test_prefix_of_a_flag_is_not_the_flag() -> None:
    assert "unknown flag --lora_drop" in refusal("--lora_drop", "0.1")


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--lora_r", "x"], ("--lora_r", "'x'", "a whole number")),
        (["--lora_r", "0"], ("--lora_r", "'0'", "1 to 65536")),
        (["--vote_timeout", "1e300"], ("--vote_timeout", "1 to 604800")),
        (["--seed", "18446744073709551616"], ("--seed", "from 0 to")),
        (["--max_steps", "9" * 400], ("--max_steps", "a whole number")),
        (["--lora_r", "1.5"], ("--lora_r", "'1.5'", "a whole number")),
        (["--learning_rate", "nan"], ("--learning_rate", "'nan'", "a number")),
        (["--learning_rate", "inf"], ("--learning_rate", "'inf'", "a number")),
        (["--lora_dropout", "1.0"], ("--lora_dropout", "0 to 0.999")),
        (["--bits", "5"], ("--bits", "'5'", "4, 8, 16, 32")),
        (["--bf16", "perhaps"], ("--bf16", "'perhaps'", "true or false")),
        (["--seed"], ("--seed", "no value")),
        (["--seed", "--bf16"], ("--seed", "no value")),
        (["--output_dir="], ("--output_dir", "empty")),
        (["train.jsonl"], ("'train.jsonl'", "--flag value")),
        (["--max_steps", "0"], ("--max_steps", "1 or more")),
        (["--max_steps", "5", "--num_train_epochs", "1"], ("--max_steps", "--num_train_epochs", "one of them")),
        (["--warn_sync_delay", "60"], ("--warn_sync_delay", "60 ms", "50 ms")),
    ],
)
def test_wrong_value_names_flag_value_and_what_is_wanted(argv: list[str], named: tuple[str, ...]) -> None:
    message = refusal(*argv)
    for part in named:
        assert part in message


@pytest.mark.parametrize(
    "argv",
    [
        ["--remove_unused_columns"],
        ["--fsdp", "full_shard"],
    ],
)
def test_flag_that_is_not_honoured_is_refused_by_name(argv: list[str]) -> None:
    assert f"{argv[0]} " in refusal(*argv)
    assert "not supported" in refusal(*argv)


def test_unsupported_flag_is_accepted_where_it_changes_nothing() -> None:
    inert = "--fsdp false --remove_unused_columns false --do_train --save_safetensors"
    assert parse(inert.split()) == Settings()


def test_doubt_about_the_clock_holds_when_the_check_is_demanded_and_warns_otherwise() -> None:
    assert parse([]).unknown_policy == "warn"
    assert parse(["--time_sync_check"]).unknown_policy == "hold"
    assert parse(["--time_sync_check", "True", "--on_unknown", "stop"]).unknown_policy == "stop"


def test_warn_limit_follows_the_hold_limit() -> None:
    assert parse([]).warn_delay_ms == pytest.approx(5.0)
    assert parse(["--max_sync_delay", "0.01"]).warn_delay_ms == pytest.approx(0.001)


def test_row_order_has_the_seed_unless_it_has_its_own() -> None:
    assert parse(["--seed", "7"]).order_seed == 7
    assert parse(["--seed", "7", "--data_seed", "0"]).order_seed == 0


def test_warm_up_without_effect_is_said() -> None:
    assert any("no warm-up" in text for text in notices(parse(["--warmup_steps", "5"])))
    assert not any("warm-up" in text for text in notices(parse([])))


@given(st.lists(st.one_of(st.text(max_size=12), st.sampled_from([f"--{flag.name}" for flag in FLAGS]))))
def test_any_command_line_gives_settings_or_a_usage_error(argv: list[str]) -> None:
    with contextlib.suppress(UsageError):
        parse(argv)


@given(st.text(string.ascii_letters + string.digits + "_./", min_size=1))
def test_text_flag_takes_any_text(value: str) -> None:
    assert parse(["--dataset", value]).dataset == value
