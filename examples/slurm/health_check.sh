#!/bin/sh
# HealthCheckProgram: drains this node while its clock cannot be used, and gives it back afterwards.
#
#   slurm.conf:  HealthCheckProgram=/etc/slurm/clockgate/health_check.sh
#                HealthCheckInterval=60
#                HealthCheckNodeState=ANY
#
# Slurm ends it after 60 s. With the shipped settings it takes at most 59, when nobody answers: six questions of 5 s, two
# of 10 s to Slurm, pauses, and a second more where a question has to be killed.
set -u
here=$(dirname "$0")
# shellcheck source=examples/slurm/clock_drain.sh
. "$here/clock_drain.sh"

problem=$(clock_problem)
if [ -z "$problem" ]; then
    undrain
else
    drain "$problem"
fi
