"""Stands in for qlora.py: beside your scripts, so that their command lines need not change.

    python qlora.py --model_name_or_path ...
    accelerate launch --num_processes 4 qlora.py --model_name_or_path ...
    torchrun --nproc_per_node 4 qlora.py --model_name_or_path ...

It is `clockgate-train` and nothing else; `clockgate-train launch` passes the ranks' exit codes on, which the two
launchers above turn into 1.
"""

import sys

from clockgate_trainer.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
