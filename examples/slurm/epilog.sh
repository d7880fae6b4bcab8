#!/bin/sh
# Epilog: ends what a job left open at the clock daemon, so that the clock may be stepped again.
#
#   slurm.conf:  Epilog=/etc/slurm/clockgate/epilog.sh
#
# A lease ends with its process; one that is left belongs to a process that outlived the job. The job's name is the one
# that train.sbatch gives it. Never fails: a failing epilog drains the node.
set -u
ask_s=${CLOCKGATE_ASK_S:-5}
job="slurm-${SLURM_JOB_ID:?set by Slurm}"

timeout -k 1 "$ask_s" clockgatectl leases |
    sed -n "s/^lease \([^ ]*\) of job $job, rank .*/\1/p" |
    while read -r lease; do
        echo "epilog: lease $lease of $job is left" >&2
        timeout -k 1 "$ask_s" clockgatectl lease break "$lease" </dev/null >&2
    done
exit 0
