"""`make demo`: a clock-gated QLoRA run on two CPU ranks, with a hold, a kill and a resume.

Starts a real clockgated in observe mode (beside a real pair of `chronyd -x` where chronyd can be had), trains a tiny
random Llama with NF4 QLoRA on real dialogues, puts a fault into the clock for three seconds, kills one rank after a
checkpoint, resumes to the end, and prints every decision of the gate. Everything is written below runs/demo.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from demo import children, decisions, tiny

STEPS, SAVE_STEPS = 60, 20
HOLD_AT_STEP, HOLD_S = 8, 3
KILL_AT_STEP = 47
RANKS = 2
PEER_LOST = 79

STARTED = time.monotonic()


def say(text: str) -> None:
    """One line of progress with the seconds since the start."""
    print(f"[{time.monotonic() - STARTED:5.1f} s] {text}", flush=True)


def daemon_config(folder: Path, chrony: tuple[Path, Path] | None) -> Path:
    """Write the daemon's settings: chrony's client when there is one, else the kernel's variables."""
    lines = ["[clock]", 'mode = "observe"', f'source = "{"chrony" if chrony else "kernel"}"']
    if chrony:
        lines += ["[chrony]", f'socket = "{chrony[0]}"', f'chronyc = "{chrony[1]}"', "maxclockerror_ppm = 50.0"]
    lines += ["[folders]", f'run = "{folder / "run"}"', f'state = "{folder / "state"}"']
    lines += ["[metrics]", 'address = ""']
    lines += ["[api]", f'socket = "{folder / "clockgate.sock"}"', f'admin_socket = "{folder / "admin" / "admin.sock"}"']
    path = folder / "clockgated.toml"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def drill(folder: Path, *words: str) -> None:
    """Put a fault into the demo's daemon, and show the command and its answer."""
    say(f"clockgatectl drill {' '.join(words)}")
    argv = [
        sys.executable, "-m", "clockgated.ctl.main", "drill",
        "--admin-address", str(folder / "admin" / "admin.sock"), *words,
    ]  # fmt: skip
    subprocess.run(argv, timeout=20, check=True)


def wait_for_bound(folder: Path) -> None:
    """Give the daemon up to 30 s to reach a usable state, then print its status."""
    for _ in range(30):
        status = subprocess.run(
            [sys.executable, "-m", "clockgated.ctl.main", "--address", str(folder / "clockgate.sock"), "status"],
            text=True, capture_output=True, timeout=20, check=False,
        )  # fmt: skip
        if status.returncode == 0:
            break
        time.sleep(1)
    print(status.stdout or status.stderr)


def train_command(work: Path, run: Path, sock: Path, on_unknown: str) -> list[str]:
    """The command line of the training job; the same for the first run and for the resumed one."""
    return [
        sys.executable, "-m", "clockgate_trainer", "launch", "--nproc_per_node", str(RANKS), "--",
        "--model_name_or_path", str(work / "model"), "--dataset", str(work / "dialogues.jsonl"),
        "--dataset_format", "input-output", "--output_dir", str(run), "--clock_daemon", str(sock),
        "--time_sync_check", "true", "--on_unknown", on_unknown, "--device", "cpu",
        "--max_steps", str(STEPS), "--save_steps", str(SAVE_STEPS), "--logging_steps", "5",
        "--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "2",
        "--source_max_len", "32", "--target_max_len", "32", "--lora_r", "8", "--lora_dropout", "0.1",
        "--learning_rate", "0.001", "--seed", "0", "--vote_timeout", "30",
    ]  # fmt: skip


def train(argv: list[str], run: Path, at_step: dict[int, Callable[[], None]]) -> int:
    """Run the job, calling each of `at_step` once when rank 0 has finished that step; return its exit code."""
    events = run / "events.jsonl"
    pending = dict(at_step)
    with subprocess.Popen(argv) as job:
        while job.poll() is None:
            step = decisions.last_step(events) if events.exists() else 0
            for wanted in [wanted for wanted in pending if step >= wanted]:
                pending.pop(wanted)()
            time.sleep(0.1)
        return job.returncode


def kill_rank(run: Path, rank: int) -> None:
    """SIGKILL one rank by the pid that it logged at its start."""
    pid = decisions.rank_pid(run, rank)
    say(f"SIGKILL rank {rank} (pid {pid})")
    os.kill(pid, signal.SIGKILL)


def main() -> int:
    """Run the demo; 0 when everything ended as it should."""
    run = children.ROOT / "runs/demo"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    # Unix socket paths are limited to 107 bytes, so the sockets live in a short folder of their own.
    with tempfile.TemporaryDirectory(prefix="clockgate-demo-") as short:
        return in_folder(Path(short), run)


def in_folder(work: Path, run: Path) -> int:
    """The demo proper, with its sockets and inputs in `work`."""
    say("making a tiny Llama (random weights, real tokenizer) and a data set of real dialogues")
    tiny.make_model(work / "model", seed=0)
    rows = tiny.make_dialogues(work / "dialogues.jsonl")
    say(f"{rows} instruction pairs")
    with children.chrony_pair(work) as chrony:
        if chrony is None:
            say(
                "no chronyd on this machine: the kernel's clock alone is read, and --on_unknown warn lets the run go on"
            )
        else:
            say("started chronyd -x twice: a server with `local stratum 8` and a client that follows it")
        sock = work / "clockgate.sock"
        with children.daemon(daemon_config(work, chrony), run / "clockgated.log", sock):
            wait_for_bound(work)
            return job(work, run, sock, "hold" if chrony else "warn")


def job(work: Path, run: Path, sock: Path, on_unknown: str) -> int:
    """Both runs of the job, and what is left of them."""
    argv = train_command(work, run, sock, on_unknown)
    say(f"first run: {STEPS} steps, a checkpoint every {SAVE_STEPS}")
    faults: dict[int, Callable[[], None]] = {
        HOLD_AT_STEP: lambda: drill(work, "offset", "200ms", "--for", f"{HOLD_S}s"),
        KILL_AT_STEP: lambda: kill_rank(run, RANKS - 1),
    }
    code = train(argv, run, faults)
    say(f"the job ended with exit code {code} (79: a peer died)")
    if code != PEER_LOST:
        return fail(f"wanted exit code {PEER_LOST} after the kill, got {code}")
    print(json.dumps(json.loads((run / "outcome.json").read_text(encoding="utf-8")), indent=2))
    say("second run: the same command, which resumes from the newest verified checkpoint")
    code = train(argv, run, {})
    if code != 0:
        return fail(f"wanted exit code 0 from the resumed run, got {code}")
    print()
    print(decisions.table(run / "events.jsonl"))
    verify = subprocess.run([sys.executable, "-m", "clockgate_trainer", "verify", str(run)], timeout=120, check=False)
    if verify.returncode != 0:
        return fail("a checkpoint does not verify")
    held_s = decisions.held_s(run / "events.jsonl")
    if on_unknown == "hold" and held_s < HOLD_S - 1:
        return fail(f"the drill lasted {HOLD_S} s, but the ranks held for {held_s:.1f} s only")
    say(f"done; held {held_s:.1f} s in all. Written below {run}:")
    for path in sorted(run.iterdir()):
        print(f"  {path}{'/' if path.is_dir() else ''}")
    return 0


def fail(text: str) -> int:
    """Say what went wrong, and where to look."""
    print(f"demo: {text}; see the log above and runs/demo", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
