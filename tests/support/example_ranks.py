"""Runs the examples of the gate on two ranks each after one import of torch, transformers and trl:
`python -m support.example_ranks FOLDER ADDRESS0 ADDRESS1 NAME...`.

Each rank asks the daemon at its own address. Prints one line of JSON: the exit codes of each example's ranks. What the
ranks of NAME wrote to standard error is in FOLDER/NAME-RANK.log.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from gated import ddp_loop, hf_trainer, trl_sft
from support.ports import free_port

# A step of the bare loop takes a millisecond: it needs more of them until a daemon has been heard.
STEPS = {"ddp_loop": "100", "hf_trainer": "6", "trl_sft": "6"}
EXAMPLES: Mapping[str, Callable[[], int]] = {
    "ddp_loop": ddp_loop.main,
    "hf_trainer": hf_trainer.main,
    "trl_sft": trl_sft.main,
}
LIMIT_S = 100


def _fork(folder: Path, name: str, rank: int, address: str, port: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        signal.alarm(LIMIT_S)
        log = os.open(folder / f"{name}-{rank}.log", os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(log, 2)
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "CLOCKGATE_ADDRESS": address,
        }
        sys.argv = [name, "--steps", STEPS[name], "--output_dir", str(folder / name)]
        code = EXAMPLES[name]()
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(code)


def main(folder: Path, addresses: tuple[str, str], *names: str) -> int:
    found = {}
    for name in names:
        port = free_port()
        pids = [_fork(folder, name, rank, address, port) for rank, address in enumerate(addresses)]
        found[name] = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), (sys.argv[2], sys.argv[3]), *sys.argv[4:]))
