"""`python -m support.chaos`: run named faults and seeded combinations, and tell how each ended.

    python -m support.chaos                       all named faults, and seeds 0 to 19
    python -m support.chaos --fault NAME          one of them (any part of the name)
    python -m support.chaos --seed 7              one combination, printed before it is run
    python -m support.chaos --seeds 0:200         many combinations and no named fault
    python -m support.chaos --write FILE          and put the figures into the marked part of FILE

Exit codes: 0 all ended as they must, 1 not all did, 2 usage.
"""

import sys

from support.chaos.suite import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
