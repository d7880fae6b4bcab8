"""Where settings come from beside flags: presets, run files, and other programs' spellings."""

import dataclasses
from contextlib import suppress
from pathlib import Path

import pytest
from clockgate_trainer.errors import UsageError
from clockgate_trainer.flags.config_file import text_of, words_of
from clockgate_trainer.flags.parse import parse, read_command_line
from clockgate_trainer.flags.presets import PRESETS
from clockgate_trainer.flags.spellings import other_spellings, respell
from clockgate_trainer.flags.table import FLAGS, Settings
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Seq2SeqTrainingArguments

SCRIPT_7B = [
    "--model_name_or_path",
    "huggyllama/llama-7b",
    "--use_auth",
    "--output_dir",
    "./output/guanaco-7b",
    "--logging_steps",
    "10",
    "--save_strategy",
    "steps",
    "--data_seed",
    "42",
    "--save_steps",
    "500",
    "--save_total_limit",
    "40",
    "--evaluation_strategy",
    "no",
    "--max_new_tokens",
    "32",
    "--dataloader_num_workers",
    "1",
    "--group_by_length",
    "--logging_strategy",
    "steps",
    "--remove_unused_columns",
    "False",
    "--do_train",
    "--lora_r",
    "64",
    "--lora_alpha",
    "16",
    "--lora_modules",
    "all",
    "--double_quant",
    "--quant_type",
    "nf4",
    "--bf16",
    "--bits",
    "4",
    "--warmup_ratio",
    "0.03",
    "--lr_scheduler_type",
    "constant",
    "--gradient_checkpointing",
    "--dataset",
    "oasst1",
    "--source_max_len",
    "16",
    "--target_max_len",
    "512",
    "--per_device_train_batch_size",
    "1",
    "--gradient_accumulation_steps",
    "16",
    "--max_steps",
    "1875",
    "--learning_rate",
    "0.0002",
    "--adam_beta2",
    "0.999",
    "--max_grad_norm",
    "0.3",
    "--lora_dropout",
    "0.1",
    "--weight_decay",
    "0.0",
    "--seed",
    "0",
]


def refusal(*argv: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(argv)
    return str(caught.value)


def test_preset_is_the_published_script() -> None:
    script = dataclasses.asdict(parse(SCRIPT_7B))
    preset = dataclasses.asdict(parse(["--preset", "guanaco-7b", "--output_dir", "./output/guanaco-7b", "--use_auth"]))
    assert preset == script


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_whole_run(name: str) -> None:
    assert isinstance(parse(["--preset", name]), Settings)


def test_the_guides_presets_really_warm_up() -> None:
    found = parse(["--preset", "seed-65b"])
    assert (found.learning_rate, found.warmup_ratio, found.gradient_accumulation_steps) == (1e-5, 0.1, 64)
    assert found.lr_scheduler_type == "constant_with_warmup"


def test_flags_win_over_a_run_file_and_that_over_a_preset(tmp_path: Path) -> None:
    run = tmp_path / "run.yaml"
    run.write_text("lora_r: 8\nlearning_rate: 3e-5\n")
    found = parse(["--lora_r", "4", "--config", str(run), "--preset", "guanaco-7b"])
    assert (found.lora_r, found.learning_rate, found.lora_dropout) == (4, 3e-5, 0.1)


def test_unknown_preset_gets_the_near_one() -> None:
    assert "did you mean guanaco-13b?" in refusal("--preset", "guanaco_13b")


def test_print_config_can_be_read_back(tmp_path: Path) -> None:
    line = read_command_line([*SCRIPT_7B, "--max_memory", "{0: '46000MB'}", "--print_config"])
    assert line.print_config
    run = tmp_path / "run.yaml"
    run.write_text(text_of(line.settings))
    assert parse(["--config", str(run)]) == line.settings


@given(st.data())
@settings(max_examples=50)
def test_whatever_flags_give_survives_a_run_file(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    words: list[str] = []
    for flag in data.draw(st.lists(st.sampled_from(FLAGS), unique=True, max_size=6)):
        if flag.choices:
            words += [f"--{flag.name}", str(data.draw(st.sampled_from(flag.choices)))]
        elif isinstance(flag.default, bool):
            words += [f"--{flag.name}", data.draw(st.sampled_from(["true", "false"]))]
    try:
        given_by_flags = parse(words)
    except UsageError:
        # Some contradict each other, and are refused with the reason.
        return
    run = tmp_path_factory.mktemp("run") / "run.yaml"
    run.write_text(text_of(given_by_flags))
    assert parse(["--config", str(run)]) == given_by_flags


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lora_drop: 4", "unknown flag --lora_drop: did you mean --lora_dropout"),
        ("sequence_len: 2048", "sequence_len is not supported, because here you use source_max_len"),
        ("micro_batch_size: 2", "use per_device_train_batch_size"),
        ("flash_attention: true", "cannot choose it: attention is torch's own"),
        ("lora_r: 4\nlora_r: 8", "the key lora_r is there twice"),
        ("- lora_r", "holds a list: wanted flags"),
        ("lora_r: [", "is not YAML"),
        ("lora_r: much", "--lora_r is 'much': wanted"),
        ("3: 4", "the key 3 is no name"),
        ("lora_r: 2020-01-01", "--lora_r is '2020-01-01': wanted a whole number"),
        ("lora_r: !!timestamp 2020-01-01", "wanted a number, a text, true or false"),
        ("bf16: perhaps", "--bf16 is 'perhaps': wanted true or false"),
        ("<<: {lora_r: 4}", "unknown flag --<<"),
    ],
)
def test_mistakes_in_a_run_file_are_named(tmp_path: Path, text: str, said: str) -> None:
    run = tmp_path / "run.yaml"
    run.write_text(text)
    assert said in refusal("--config", str(run))


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("save_strategy: no", "save_strategy", "no"),
        ("packing: yes", "packing", True),
        ("double_quant: off", "double_quant", False),
        ("time_sync_check: true", "time_sync_check", "true"),
        ("dataset: on", "dataset", "on"),
        ("job_name: 2026-12-01", "job_name", "2026-12-01"),
        ("job_name: 12:30:45", "job_name", "12:30:45"),
        ("lora_r: 010", "lora_r", 10),
        ("learning_rate: 1e-4", "learning_rate", 1e-4),
        ("max_memory: {0: 46000MB}", "max_memory", "{0: '46000MB'}"),
        ("data_seed: ~", "data_seed", None),
    ],
)
def test_a_value_means_what_the_same_text_means_behind_the_flag(
    tmp_path: Path, text: str, name: str, value: object
) -> None:
    run = tmp_path / "run.yaml"
    run.write_text(text)
    assert getattr(parse(["--config", str(run)]), name) == value


def test_a_secret_is_not_written_into_a_run_file(tmp_path: Path) -> None:
    line = ["--alert_webhook", "https://hooks.example/T0/B0/key", "--lora_r", "3"]
    text = text_of(parse(line))
    assert "key" not in text.replace("--", "")
    assert "CLOCKGATE_ALERT_WEBHOOK" in text
    run = tmp_path / "run.yaml"
    run.write_text(text)
    assert parse(["--config", str(run)]) == parse(line[2:])


@pytest.mark.parametrize("flag", ["--hub_token", "--hf_token", "--use_auth_token"])
def test_a_token_is_not_told_back(flag: str) -> None:
    assert "hf_abc" not in refusal(flag, "hf_abcdef")


def test_run_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert f"--config {tmp_path / 'no.yaml'} cannot be read" in refusal("--config", str(tmp_path / "no.yaml"))


@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    run = tmp_path_factory.mktemp("run") / "run.yaml"
    run.write_bytes(content)
    try:
        words = words_of(run)
    except UsageError:
        return
    assert all(isinstance(word, str) for word in words)


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--use_cpu"], "device", "cpu"),
        (["--no_cuda", "true"], "device", "cpu"),
        (["--warmup_steps", "0.05"], "warmup_ratio", 0.05),
        (["--warmup_steps", "5"], "warmup_steps", 5),
        (["--train_sampling_strategy", "random"], "group_by_length", False),
        (["--train_sampling_strategy", "group_by_length"], "group_by_length", True),
        (["--torch_dtype", "bfloat16"], "bf16", True),
        (["--load_in_8bit"], "bits", 8),
        (["--activation_checkpointing", "false"], "gradient_checkpointing", False),
        (["--full_determinism"], "deterministic", True),
        (["--run_name=night"], "job_name", "night"),
    ],
)
def test_other_spellings_mean_what_they_say_and_are_told(words: list[str], name: str, value: object) -> None:
    line = read_command_line(words)
    assert getattr(line.settings, name) == value
    assert len(line.notices) == (0 if words == ["--warmup_steps", "5"] else 1)


def test_no_spelling_shadows_a_flag() -> None:
    assert not {flag.name for flag in FLAGS} & set(other_spellings())


def fields_of_training_arguments() -> list[str]:
    return [field.name for field in dataclasses.fields(Seq2SeqTrainingArguments)]


@pytest.mark.parametrize("name", fields_of_training_arguments())
def test_every_training_argument_is_honoured_mapped_or_refused(name: str) -> None:
    """None may be unknown: a field that the loop would ignore is refused when it is set."""
    own = {flag.name for flag in FLAGS} | {alias for flag in FLAGS for alias in flag.aliases}
    if name in own or respell(name, "0.5") is not None:
        return
    with suppress(UsageError):
        parse([f"--{name}", "3"])
        return
    assert "unknown flag" not in refusal(f"--{name}", "3")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fsdp", "full_shard"], "every rank holds a copy"),
        (["--deepspeed", "zero.json"], "every rank holds a copy"),
        (["--neftune_noise_alpha", "5"], "embeddings get no noise"),
        (["--push_to_hub"], "nothing is uploaded"),
        (["--ddp_broadcast_buffers", "true"], "before the gate has answered"),
        (["--label_smoothing_factor", "0.1"], "plain cross entropy"),
    ],
)
def test_arguments_that_the_loop_would_ignore_are_refused_with_the_reason(words: list[str], said: str) -> None:
    assert said in refusal(*words)
