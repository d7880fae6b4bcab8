"""`make bench`: what the gate costs, on this machine, as ratios and latencies. Nothing is asserted.

A real clockgated on a recorded reading answers; two gloo ranks train a small torch model.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import async_save
import latency
import torch
from demo.children import daemon

HERE = Path(__file__).parent
READING = {"after_s": 0, "bound_ns": 200_000, "offset_ns": 0, "identity": "ntp:192.0.2.1", "stratum": 2}


def main() -> int:
    """Run every measurement and print one line each."""
    with tempfile.TemporaryDirectory(prefix="clockgate-bench-") as name:
        folder = Path(name)
        recording, sock = folder / "reading.jsonl", folder / "clockgate.sock"
        recording.write_text(json.dumps(READING) + "\n", encoding="utf-8")
        config = folder / "clockgated.toml"
        config.write_text(
            f'[clock]\nmode = "observe"\nsource = "recorded"\n[recorded]\nfile = "{recording}"\n'
            f'[folders]\nrun = "{folder / "run"}"\nstate = "{folder / "state"}"\n[metrics]\naddress = ""\n'
            f'[api]\nsocket = "{sock}"\nadmin_socket = "{folder / "admin" / "admin.sock"}"\n',
            encoding="utf-8",
        )
        print(f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}")
        with daemon(config, folder / "clockgated.log", sock):
            check = latency.measure(sock)
            print(f"Gate.Check over the unix socket: p50 {check['p50_ms']:.3f} ms, p99 {check['p99_ms']:.3f} ms")
            step = gated_step(sock)
        low, high = step["ratio_first_quartile"], step["ratio_third_quartile"]
        print(
            f"step gated / ungated: {step['gated_over_ungated']:.4f} (quartiles {low:.4f} to {high:.4f}, "
            f"{step['pairs']} interleaved pairs of windows, ungated step {step['ungated_step_ms']:.1f} ms, 2 ranks)"
        )
        print(f"vote alone at 2 ranks: {step['vote_alone_ms']:.3f} ms")
    print(async_save.sentence(async_save.measure(rounds=12, steps=40)))
    return 0


def gated_step(sock: Path) -> dict[str, float]:
    """Run the two ranks and return rank 0's figures."""
    argv = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
        str(HERE / "gated_step.py"), "--clock_daemon", str(sock),
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, text=True, timeout=600, check=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    sys.exit(main())
