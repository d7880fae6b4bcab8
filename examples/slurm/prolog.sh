#!/bin/sh
# Prolog: no job starts on a node whose clock cannot be used. The node is drained with a reason, the job goes elsewhere.
#
#   slurm.conf:  Prolog=/etc/slurm/clockgate/prolog.sh
#                PrologFlags=Alloc        # on every node of the job, before its first step
#
# Exit 1 makes Slurm requeue the job. health_check.sh gives the node back once its clock is good again.
set -u
here=$(dirname "$0")
# shellcheck source=examples/slurm/clock_drain.sh
. "$here/clock_drain.sh"

problem=$(clock_problem)
if [ -z "$problem" ]; then
    exit 0
fi
echo "prolog: node $node: $problem" >&2
drain "$problem" || echo "prolog: node $node could not be drained; Slurm does it for the failed prolog" >&2
exit 1
