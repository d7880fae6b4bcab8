# Sourced by prolog.sh and health_check.sh: what is wrong with this node's clock, draining for it, and the way back.
# shellcheck shell=sh
#
# Settings, from the environment or from /etc/default/clockgate-slurm:
#   CLOCKGATE_ASK_S    seconds that one question to the daemon may take (5)
#   CLOCKGATE_TRIES    questions, two seconds apart, before a bad answer counts (3)
#   CLOCKGATE_HEALTH   1: the node's health counts too (GPUs, links, disks); 0: the clock alone (1)
#   CLOCKGATE_MARK     where it is kept that this script drained the node (/var/lib/clockgate-slurm/drained)

# shellcheck disable=SC1091 # made by the site, where there is one
[ ! -r /etc/default/clockgate-slurm ] || . /etc/default/clockgate-slurm
ask_s=${CLOCKGATE_ASK_S:-5} tries=${CLOCKGATE_TRIES:-3} with_health=${CLOCKGATE_HEALTH:-1}
mark=${CLOCKGATE_MARK:-/var/lib/clockgate-slurm/drained}
node=${SLURMD_NODENAME:-$(hostname -s)}
sign="clockgate:"

# Print what is wrong in a few words; nothing when all is well. A Slurm reason is one line.
clock_problem() {
    try=1
    while :; do
        found=$(ask_once)
        if [ -z "$found" ] || [ "$try" -ge "$tries" ]; then break; fi
        try=$((try + 1))
        sleep 2
    done
    printf '%s' "$found" | tr '\n\t"' "  '" | cut -c1-200
}

ask_once() {
    said=$(timeout -k 1 "$ask_s" clockgatectl status 2>&1) && code=0 || code=$?
    case $code in
        0) ;;
        1) echo "clock out of limits: $(printf '%s\n' "$said" | sed -n '1p; s/^  reason  *//p' | head -n 2 | paste -sd ' ')" ;;
        3) echo "the clock daemon does not answer" ;;
        124 | 137) echo "the clock daemon gave no answer within $ask_s s" ;;
        *) echo "clockgatectl status ended with $code" ;;
    esac
    if [ "$code" != 0 ] || [ "$with_health" != 1 ]; then return; fi
    said=$(timeout -k 1 "$ask_s" clockgatectl health --fail-on critical 2>&1) && code=0 || code=$?
    case $code in
        # 3: the daemon, which has just answered, has not looked at its node yet.
        0 | 3) ;;
        1) echo "unhealthy: $(printf '%s\n' "$said" | head -n 2 | paste -sd ' ')" ;;
        124 | 137) echo "the health of the node could not be told within $ask_s s" ;;
        *) echo "clockgatectl health ended with $code" ;;
    esac
}

# The reason that Slurm holds for this node; empty when there is none. Fails when Slurm does not answer.
reason_now() {
    shown=$(timeout -k 1 10 scontrol show node "$node" --oneliner) || return 1
    printf '%s\n' "$shown" | sed -n 's/.*[[:space:]]Reason=//p'
}

# Drain, unless somebody else has drained the node already: their reason stays.
drain() {
    reason=$(reason_now) || return 1
    case $reason in
        "" | "$sign"*) ;;
        *) return 0 ;;
    esac
    # The mark comes first: a node that is drained without one would never be given back.
    mkdir -p "$(dirname "$mark")" && printf '%s\n' "$1" >"$mark" || return 1
    timeout -k 1 10 scontrol update NodeName="$node" State=DRAIN Reason="$sign $1"
}

# Give the node back, if this script drained it and nobody has given another reason since. The mark stays for the next
# time while Slurm does not answer.
undrain() {
    [ -e "$mark" ] || return 0
    reason=$(reason_now) || return 1
    case $reason in
        "$sign"*) timeout -k 1 10 scontrol update NodeName="$node" State=RESUME || return 1 ;;
    esac
    rm -f "$mark"
}
