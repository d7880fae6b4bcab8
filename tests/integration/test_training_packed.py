"""Whole training runs on packed rows: the same samples give the same run, stopped and resumed on 1, 2 and 4 ranks."""

import json
from pathlib import Path

import pytest
from clockgate_trainer.checkpoint.verify import verify
from support.forked_ranks import Job, run_jobs
from support.tiny_model import make_model, make_rows

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

STEPS = 6
RANKS = (1, 2, 4)
# One optimizer step of a whole epoch, in each of the ways in which it can be divided.
WHOLE_EPOCH = {"solo": (1, 1, 64), "wide": (1, 8, 8), "pair": (2, 2, 16), "unpacked": (1, 4, 16)}


class Runs:
    """Every run of this module."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs: list[tuple[str, Job]] = []
        self.codes: dict[str, list[list[int]]] = {}
        self._base = [
            "--model_name_or_path", str(make_model(folder / "model")),
            "--dataset", str(make_rows(folder / "rows.jsonl")), "--dataset_format", "input-output",
            "--device", "cpu", "--lora_r", "8", "--learning_rate", "0.001", "--time_sync_check", "false",
            "--logging_steps", "100", "--save_steps", "3", "--keep_steps",
        ]  # fmt: skip

    def plan(self, name: str, ranks: int, *flags: str) -> None:
        """Add one start of the run `name`; equal names share a run folder."""
        self._jobs.append((name, Job(ranks, [*self._base, "--output_dir", str(self._folder / name), *flags])))

    def carry_out(self) -> None:
        found = run_jobs(self._folder, [job for _, job in self._jobs])
        for (name, _), codes in zip(self._jobs, found, strict=True):
            self.codes.setdefault(name, []).append(codes)

    def losses(self, name: str) -> list[tuple[int, float, float]]:
        """Step, loss and gradient norm."""
        lines = (self._folder / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [(row["step"], row["loss"], row["grad_norm"]) for row in map(json.loads, lines)]

    def adapter(self, name: str) -> str:
        path = self._folder / name / f"checkpoint-{STEPS}"
        assert verify(path) == ()
        digest: str = json.loads((path / "manifest.json").read_text(encoding="utf-8"))["adapter_sha256"]
        return digest


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    made = Runs(tmp_path_factory.mktemp("packed"))
    packed = ("--packing", "--pack_length", "64", "--gradient_accumulation_steps", "2", "--lora_dropout", "0.1")
    for ranks in RANKS:
        made.plan(f"whole-{ranks}", ranks, *packed, "--max_steps", str(STEPS))
        for stop in (4, STEPS):
            made.plan(f"parts-{ranks}", ranks, *packed, "--max_steps", str(stop))
    for name, (ranks, micro_batch, accumulation) in WHOLE_EPOCH.items():
        packing = ("--packing", "--pack_length", "64") if name != "unpacked" else ()
        split = ("--per_device_train_batch_size", str(micro_batch), "--gradient_accumulation_steps", str(accumulation))
        made.plan(name, ranks, *packing, *split, "--max_steps", "2")
    made.carry_out()
    return made


@pytest.mark.parametrize("ranks", RANKS)
def test_resumed_packed_run_is_bit_identical_to_an_uninterrupted_one(runs: Runs, ranks: int) -> None:
    assert runs.codes[f"whole-{ranks}"] == [[0] * ranks]
    assert runs.codes[f"parts-{ranks}"] == [[0] * ranks] * 2
    assert runs.losses(f"parts-{ranks}") == runs.losses(f"whole-{ranks}")
    assert runs.adapter(f"parts-{ranks}") == runs.adapter(f"whole-{ranks}")


@pytest.mark.parametrize("name", ["wide", "pair", "unpacked"])
def test_same_samples_give_the_same_losses_packed_or_not_and_however_divided(runs: Runs, name: str) -> None:
    for (_, loss, norm), (_, wanted, wanted_norm) in zip(runs.losses(name), runs.losses("solo"), strict=True):
        assert loss == pytest.approx(wanted, rel=1e-4)
        assert norm == pytest.approx(wanted_norm, rel=1e-3)
