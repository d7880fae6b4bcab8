"""What is decided about resets, proof of reachability, drift and names, without a node."""

import itertools

import pytest
from clockgated.clock.model import ClockState, Reference, SourceKind
from clockgated.tuning.confirm import Decision, Look, Patience
from clockgated.tuning.confirm import judge as judge_proof
from clockgated.tuning.drift import DriftAction, DriftPolicy, Round, judge
from clockgated.tuning.identity import find
from clockgated.tuning.interlock import ClockLook, clock_look, reset_refusal
from clockgated.tuning.model import Area, Knob, LinkId, Owner, OwnerKind
from clockgated.tuning.suspects import suspect
from clockgated.units import NS_PER_S
from hypothesis import given
from hypothesis import strategies as st
from support.readings import reading
from support.tuning import change

RESET = change("x", "1", "2", resets_link=True)
LEASE = "lease 1 (job, rank 0) forbids a step; wait for the job to end, or `clockgatectl lease break ID`"
FREE, LOCKED = ClockLook(), ClockLook(0, is_ptp_locked=True)
PATIENCE = Patience(limit_ns=55 * NS_PER_S, settle_ns=2 * NS_PER_S)


def test_only_what_resets_a_link_has_to_wait() -> None:
    assert reset_refusal(change("x", "1", "2"), LEASE, LOCKED, ignore_leases=False) is None
    assert reset_refusal(RESET, None, FREE, ignore_leases=False) is None


def test_an_open_lease_forbids_a_reset_unless_the_operator_ignores_it() -> None:
    refusal = reset_refusal(RESET, LEASE, FREE, ignore_leases=False)

    assert refusal is not None
    assert "lease 1" in refusal
    assert "--ignore-leases" in refusal
    assert reset_refusal(RESET, LEASE, FREE, ignore_leases=True) is None


@pytest.mark.parametrize("ignore_leases", [False, True])
def test_a_clock_that_rests_on_ptp_alone_forbids_a_reset_whatever_the_operator_says(ignore_leases: bool) -> None:
    assert reset_refusal(RESET, None, LOCKED, ignore_leases=ignore_leases) is not None
    protected = ClockLook(0, is_ptp_locked=True, is_protected=True)
    assert reset_refusal(RESET, None, protected, ignore_leases=ignore_leases) is None


def test_what_a_reading_says_about_ptp() -> None:
    ptp = reading(state=ClockState.SYNCHRONIZED, source_kind=SourceKind.PTP)
    assert clock_look(ptp, frozenset()) == ClockLook(ptp.as_of_boot_ns, is_ptp_locked=True)
    lost = reading(state=ClockState.HOLDOVER, source_kind=SourceKind.PTP)
    assert clock_look(lost, frozenset()).is_ptp_locked is False
    fed = reading(state=ClockState.SYNCHRONIZED, source_kind=SourceKind.CHRONY, reference=Reference(source_name="PTP0"))
    assert clock_look(fed, {"PTP0"}) == ClockLook(fed.as_of_boot_ns, is_ptp_locked=True, is_protected=True)
    assert clock_look(fed, {"PTP1"}).is_ptp_locked is False
    assert clock_look(fed, frozenset()).is_ptp_locked is None


def proof(reached: frozenset[str], locked: bool | None, as_of_s: float) -> Look:
    return Look(reached, ClockLook(round(as_of_s * NS_PER_S), locked))


def test_proof_needs_everything_that_was_reached_and_locked_before() -> None:
    """Every combination of what was there before and what is there after, at every stage of the wait."""
    sets = [frozenset[str](), frozenset({"a"}), frozenset({"a", "b"})]
    for was, now, was_locked, is_locked, at_s in itertools.product(
        sets, sets, (None, False, True), (None, False, True), (0, 1, 3, 54, 55, 60)
    ):
        decision, why = judge_proof(
            proof(was, was_locked, 99),
            proof(now, is_locked, 100 + at_s),
            100 * NS_PER_S,
            (100 + at_s) * NS_PER_S,
            PATIENCE,
        )
        is_proven = was <= now and (not was_locked or (bool(is_locked) and at_s >= 2)) and at_s >= 2
        expected = Decision.CONFIRM if is_proven else Decision.UNDO if at_s >= 55 else Decision.WAIT
        assert decision is expected, (was, now, was_locked, is_locked, at_s, why)
        assert bool(why) or decision is not Decision.UNDO


def test_a_lock_that_was_seen_before_the_change_settled_proves_nothing() -> None:
    before = proof(frozenset({"a"}), True, 99)
    stale = proof(frozenset({"a"}), True, 101)

    decision, why = judge_proof(before, stale, 100 * NS_PER_S, 110 * NS_PER_S, PATIENCE)

    assert decision is Decision.WAIT
    assert "PTP" in why


def test_more_that_answers_than_before_is_no_harm() -> None:
    decision, _ = judge_proof(proof(frozenset(), None, 0), proof(frozenset({"x"}), None, 0), 0, 3 * NS_PER_S, PATIENCE)

    assert decision is Decision.CONFIRM


REASSERT = DriftPolicy(may_reassert=True, per_hour=3)


def fight(policy: DriftPolicy, writers: list[str], spacing_s: int = 60) -> list[DriftAction]:
    """What is done about each of `writers`, who change the knob one after the other."""
    rounds: list[Round] = []
    actions = []
    for number, writer in enumerate(writers):
        now_ns = number * spacing_s * NS_PER_S
        action, _ = judge(rounds, writer, now_ns, policy, is_as_set=False)
        actions.append(action)
        if action is DriftAction.REASSERT:
            rounds.append(Round(now_ns, writer))
    return actions


def test_two_writers_that_fight_stop_after_two_rounds() -> None:
    assert fight(REASSERT, ["tuned"] * 6) == [DriftAction.REASSERT] * 2 + [DriftAction.LEAVE] * 4


def test_a_writer_that_is_not_known_is_one_writer() -> None:
    assert fight(REASSERT, ["unknown"] * 3)[-1] is DriftAction.LEAVE


def test_different_writers_together_do_not_exceed_the_hour() -> None:
    actions = fight(REASSERT, ["a", "b", "c", "d"], spacing_s=60)

    assert actions == [DriftAction.REASSERT] * 3 + [DriftAction.REPORT]


def test_an_hour_later_it_is_set_again() -> None:
    assert fight(DriftPolicy(may_reassert=True, per_hour=1), ["a", "b"], spacing_s=3600) == [DriftAction.REASSERT] * 2


def test_without_leave_to_set_again_it_is_only_told() -> None:
    assert fight(DriftPolicy(), ["a"] * 4) == [DriftAction.REPORT] * 4


def test_a_writer_that_is_not_known_is_said_so() -> None:
    assert "not known" in judge([], "unknown", 0, DriftPolicy(), is_as_set=False)[1]
    assert judge([], "unknown", 0, REASSERT, is_as_set=True) == (DriftAction.NOTHING, "")


@given(st.lists(st.sampled_from(["a", "b", "unknown"]), max_size=60), st.integers(0, 5), st.integers(1, 4000))
def test_it_is_never_set_again_more_often_than_promised(writers: list[str], per_hour: int, spacing_s: int) -> None:
    actions = fight(DriftPolicy(may_reassert=True, per_hour=per_hour), writers, spacing_s)
    times = [number * spacing_s for number, action in enumerate(actions) if action is DriftAction.REASSERT]

    assert all(sum(0 <= later - one < 3600 for later in times) <= per_hour for one in times)
    for writer in set(writers):
        told = [action for action, one in zip(actions, writers, strict=True) if one == writer]
        assert told.count(DriftAction.REASSERT) <= 2


REAL = LinkId("eth0", 2, "02:00:00:00:00:01", "mlx5_core")
VETH = LinkId("veth0", 7)


def test_a_renamed_interface_is_found_by_its_permanent_address() -> None:
    renamed = LinkId("ens1", 9, REAL.permanent_mac, "mlx5_core")

    assert find(REAL, [VETH, renamed]) == renamed


def test_another_interface_of_the_same_name_is_not_taken_for_it() -> None:
    assert find(REAL, [LinkId("eth0", 2, "02:00:00:00:00:99", "mlx5_core")]) is None
    assert find(VETH, [LinkId("veth0", 8)]) is None
    assert find(VETH, [LinkId("veth0", 7, "02:00:00:00:00:99")]) is None


def test_a_renamed_virtual_interface_is_found_by_its_index() -> None:
    assert find(VETH, [LinkId("renamed", 7)]) == LinkId("renamed", 7)


def test_of_two_with_one_address_the_index_decides() -> None:
    twin = LinkId("eth1", 3, REAL.permanent_mac, REAL.driver)

    assert find(REAL, [twin, REAL]) == REAL
    assert find(REAL, [twin, LinkId("eth2", 4, REAL.permanent_mac, REAL.driver)]) is None


def test_who_may_have_changed_a_knob() -> None:
    knob = Knob(1, Area.SYSCTL, "net.ipv4.tcp_rmem")
    tuned, balance = Owner(OwnerKind.TUNED, "tuned profile x"), Owner(OwnerKind.IRQBALANCE, "irqbalance.service")
    file = Owner(OwnerKind.ADMIN_FILE, "/etc/sysctl.d/60-site.conf:1", "4096 1 2")

    assert suspect(knob, "4096 1 2", file, (tuned,)) == file
    assert suspect(knob, "something else", file, (balance, tuned)) == tuned
    assert suspect(knob, "something else", None, (balance,)) is None
    assert suspect(Knob(1, Area.IRQ, "eth0-0"), "2", None, (balance, tuned)) == balance
