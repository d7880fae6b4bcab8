"""Runs in float16, of all weights and with 8-bit state: what is skipped and saved, and what a resume goes on from."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from clockgate_trainer.checkpoint.digest import digest_tensors
from clockgate_trainer.checkpoint.files import HOST
from clockgate_trainer.checkpoint.manifest import Manifest
from clockgate_trainer.checkpoint.verify import read_manifest, verify
from support.forked_ranks import Job, run_jobs
from support.tiny_model import make_model, make_rows
from transformers import AutoModelForCausalLM

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

STEPS = 5
KINDS = {
    # A large adapter scale makes float16 gradients overflow at the first loss scales.
    "fp16": ["--fp16", "--lora_r", "4", "--lora_alpha", "256"],
    "full": ["--full_finetune", "--bits", "32", "--bf16", "--optim", "adamw_torch", "--save_total_limit", "1"],
    "eight": ["--bits", "8", "--lora_r", "64", "--optim", "paged_adamw_8bit"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For each kind a run without a stop, and one that was stopped after two steps and resumed."""
    folder = tmp_path_factory.mktemp("runs")
    model = make_model(folder / "model")
    rows = make_rows(folder / "rows.jsonl", 12)
    jobs = []
    for name, flags in KINDS.items():
        common = [
            "--model_name_or_path", str(model), "--dataset", str(rows), "--device", "cpu", "--lora_dropout", "0.1",
            "--gradient_accumulation_steps", "2", "--time_sync_check", "false", *flags,
        ]  # fmt: skip
        for output, steps in (("whole", STEPS), ("parts", 2), ("parts", STEPS)):
            ranks = 1 if name == "eight" else 2
            jobs.append(Job(ranks, [*common, "--max_steps", str(steps), "--output_dir", str(folder / name / output)]))
    codes = run_jobs(folder, jobs)
    assert codes == [[0] * job.ranks for job in jobs]
    return folder


def checkpoint(runs: Path, kind: str, output: str) -> Path:
    return runs / kind / output / f"checkpoint-{STEPS}"


def metrics(runs: Path, kind: str, output: str) -> list[dict[str, Any]]:
    lines = (runs / kind / output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def adapter_digest(folder: Path) -> str:
    manifest = read_manifest(folder, HOST)
    assert isinstance(manifest, Manifest)
    return manifest.adapter_sha256


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_ends_with_the_weights_and_state_of_one_that_never_stopped(runs: Path, kind: str) -> None:
    one, other = checkpoint(runs, kind, "whole"), checkpoint(runs, kind, "parts")
    assert verify(one) == verify(other) == ()
    assert adapter_digest(one) == adapter_digest(other)
    assert (one / "optimizer.pt").read_bytes() == (other / "optimizer.pt").read_bytes()
    assert [row["loss"] for row in metrics(runs, kind, "whole")] == [
        row["loss"] for row in metrics(runs, kind, "parts")
    ]


def test_a_step_that_overflows_float16_is_skipped_counted_and_halves_the_loss_scale(runs: Path) -> None:
    rows = metrics(runs, "fp16", "whole")
    assert len(rows) == STEPS
    skipped = [row for row in rows if row["skipped"]]
    assert 0 < len(skipped) < STEPS
    before = [65536.0, *(row["loss_scale"] for row in rows[:-1])]
    assert [row["loss_scale"] for row in rows] == [
        scale / 2 if row["skipped"] else scale for scale, row in zip(before, rows, strict=True)
    ]
    for name in ("events.jsonl", "events-rank1.jsonl"):
        told = [json.loads(line) for line in (runs / "fp16" / "whole" / name).read_text(encoding="utf-8").splitlines()]
        assert [each["step"] for each in told if each["event"] == "bad_step"] == [row["step"] for row in skipped]
    saved = torch.load(checkpoint(runs, "fp16", "parts") / "optimizer.pt", weights_only=True)
    assert saved["loss_scale"]["scale"] == rows[-1]["loss_scale"]


def test_all_weights_load_in_plain_transformers_and_older_checkpoints_leave(runs: Path) -> None:
    folder = checkpoint(runs, "full", "parts")
    plain = AutoModelForCausalLM.from_pretrained(folder)
    assert digest_tensors(dict(plain.named_parameters())) == adapter_digest(folder)
    assert [path.name for path in folder.parent.glob("checkpoint-*")] == [folder.name]
    start = AutoModelForCausalLM.from_pretrained(runs / "model")
    assert all(not torch.equal(old, new) for old, new in zip(start.parameters(), plain.parameters(), strict=True))


def test_moments_of_an_eight_bit_optimizer_are_eight_bit_where_tensors_are_large_enough(runs: Path) -> None:
    state = torch.load(checkpoint(runs, "eight", "whole") / "optimizer.pt", weights_only=True)["state"]
    # bitsandbytes nests what it quantises.
    moments = [inner["state1"] for each in state.values() for inner in each.values() if isinstance(inner, dict)]
    assert {(moment.dtype, moment.numel() >= 4096) for moment in moments} == {(torch.uint8, True)}
    assert len(moments) == len(state)
