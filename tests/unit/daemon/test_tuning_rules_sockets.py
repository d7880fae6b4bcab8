"""Rules about buffers and sockets on made-up facts: what is set, what is only told, what is left alone."""

from dataclasses import replace

import pytest
from clockgated.tuning import values
from clockgated.tuning.facts import (
    Cpus,
    Facts,
    SysctlFact,
)  # fmt: skip
from clockgated.tuning.model import Counter, LinkId, Plan, RefusalCode, Risk
from support.tuning_tree import ABSENT, change, facts, findings, link, plan_for, profile, refusal

RMEM, WMEM = "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"


def on_host(seen: Facts, **changes: object) -> Facts:
    return replace(seen, host=replace(seen.host, **changes))  # type: ignore[arg-type]


def only(plan: Plan, subject: str) -> str:
    found = change(plan, subject)
    assert found is not None, [one.knob.subject for one in plan.changes]
    return found.wanted


# Socket buffers


def test_only_the_third_value_is_raised_and_the_reason_shows_its_inputs() -> None:
    plan = plan_for(facts(link(speed_mbps=10_000), rtt_us=50_000))
    found = change(plan, RMEM)
    assert found is not None
    assert (found.found, found.wanted) == ("4096 131072 6291456", "4096 131072 134217728")
    assert (found.risk, found.new_connections_only) == (Risk.SOCKETS, True)
    inputs = {one.name: one.value for one in found.why.inputs}
    assert inputs["link_bps"] == 10_000_000_000
    assert inputs["rtt"] == 50_000
    assert inputs["need"] == values.need_bytes(10_000_000_000, 50_000)
    assert found.why.formula


def test_within_a_hall_nothing_is_raised_and_the_bound_says_so() -> None:
    plan = plan_for(facts(link(speed_mbps=25_000), rtt_us=200, sysctls={WMEM: "4096 16384 6291456"}))
    assert change(plan, RMEM) is None
    (bound,) = plan.bounds
    assert bound.gain == pytest.approx(1.0)
    assert "no gain is to be expected from larger buffers" in bound.sentence


def test_between_sites_the_bound_says_what_larger_buffers_can_bring_at_most() -> None:
    (bound,) = plan_for(facts(link(speed_mbps=10_000), rtt_us=100_000)).bounds
    assert bound.flow_bps == 4194304 // 2 * 8 * 10
    assert bound.gain == pytest.approx(10_000_000_000 / bound.flow_bps)
    assert "at most 59.6 times" in bound.sentence


def test_larger_values_found_are_kept() -> None:
    plan = plan_for(facts(rtt_us=200, sysctls={RMEM: "4096 67108864 1073741824", WMEM: "4096 16384 1073741824"}))
    assert change(plan, RMEM) is None
    assert change(plan, WMEM) is None


def test_without_a_measured_path_nothing_is_guessed() -> None:
    for seen in (facts(rtt_us=None), facts(link(speed_mbps=None))):
        refused = refusal(plan_for(seen), RMEM)
        assert refused is not None
        assert refused.code is RefusalCode.UNKNOWN_INPUT
        assert plan_for(seen).bounds == ()


def test_a_profile_may_tell_the_rate_of_a_path_that_no_link_tells() -> None:
    plan = plan_for(facts(link(speed_mbps=None), rtt_us=50_000), profile(path_mbps=10_000))
    assert only(plan, RMEM).endswith(" 134217728")


def test_a_spoiled_value_is_told_and_not_built_upon() -> None:
    for spoiled in ("abc", "4096 131072", "1 2 3 4"):
        refused = refusal(plan_for(facts(rtt_us=50_000, sysctls={RMEM: spoiled})), RMEM)
        assert refused is not None
        assert refused.code is RefusalCode.ERROR


def test_a_small_rmem_max_blocks_nothing_and_is_left_alone() -> None:
    plan = plan_for(facts(link(speed_mbps=10_000), rtt_us=50_000, sysctls={RMEM: "4096 131072 67108864"}))
    assert change(plan, "net.core.rmem_max") is None
    assert only(plan, RMEM).endswith(" 134217728")


def test_rmem_max_is_raised_for_a_program_that_asks_for_it() -> None:
    assert only(plan_for(facts(), profile(setsockopt_mib=64)), "net.core.rmem_max") == "67108864"
    assert change(plan_for(facts(), profile(setsockopt_mib=1)), "net.core.rmem_max") is None


def test_in_a_namespace_a_key_that_cannot_be_written_is_refused() -> None:
    seen = facts(sysctls={"net.core.rmem_max": SysctlFact("4194304", is_writable=False)})
    refused = refusal(plan_for(seen, profile(setsockopt_mib=64)), "net.core.rmem_max")
    assert refused is not None
    assert refused.code is RefusalCode.READ_ONLY


def test_pressure_on_tcp_memory_is_told() -> None:
    seen = on_host(facts(), tcp_pages_in_use=3_500_000)
    assert findings(plan_for(seen), "TCP_MEMORY_PRESSURE")
    assert not findings(plan_for(on_host(facts(), tcp_pages_in_use=10)), "TCP_MEMORY_PRESSURE")


# Sockets


def test_bbr_is_wanted_between_sites_and_cubic_kept_within_one() -> None:
    key = "net.ipv4.tcp_congestion_control"
    assert only(plan_for(facts(), profile("wan")), key) == "bbr"
    assert change(plan_for(facts(), profile("tcp")), key) is None


def test_bbr_that_is_not_loaded_is_refused_with_the_next_step() -> None:
    key = "net.ipv4.tcp_congestion_control"
    seen = facts(sysctls={"net.ipv4.tcp_available_congestion_control": "reno cubic"})
    refused = refusal(plan_for(seen, profile("wan")), key)
    assert refused is not None
    assert refused.code is RefusalCode.UNSUPPORTED
    assert "modprobe tcp_bbr" in refused.next_step


def test_a_typo_for_a_congestion_control_is_an_error_that_suggests() -> None:
    refused = refusal(plan_for(facts(), profile(congestion_control="brr")), "net.ipv4.tcp_congestion_control")
    assert refused is not None
    assert refused.code is RefusalCode.ERROR
    assert "bbr" in refused.why.sentence


def test_mtu_probing_is_for_jumbo_frames_and_tunnels_alone() -> None:
    key = "net.ipv4.tcp_mtu_probing"
    tunnel = link("wg0", link_id=LinkId("wg0", 3), kind="wireguard", mtu=1420, speed_mbps=None)
    assert change(plan_for(facts(link(mtu=1500))), key) is None
    assert only(plan_for(facts(link(mtu=9000))), key) == "1"
    assert only(plan_for(facts(link(), tunnel)), key) == "1"
    assert change(plan_for(facts(link(mtu=9000), sysctls={key: "2"})), key) is None


def test_slow_start_after_idle_goes_off_for_training_over_tcp() -> None:
    assert only(plan_for(facts()), "net.ipv4.tcp_slow_start_after_idle") == "0"


def test_optional_keys_are_set_only_where_a_profile_names_them() -> None:
    asked = profile(notsent_lowat_bytes=131072, no_metrics_save=True, port_range="50000  51000")
    plan = plan_for(facts(), asked)
    assert only(plan, "net.ipv4.tcp_notsent_lowat") == "131072"
    assert only(plan, "net.ipv4.tcp_no_metrics_save") == "1"
    assert only(plan, "net.ipv4.ip_local_port_range") == "50000 51000"
    plain = plan_for(facts())
    assert not {"net.ipv4.tcp_notsent_lowat", "net.ipv4.ip_local_port_range"} & {one.knob.key for one in plain.changes}


@pytest.mark.parametrize("key", ["net.ipv4.tcp_timestamps", "net.ipv4.tcp_sack"])
def test_what_protects_tcp_is_told_when_off_and_never_changed(key: str) -> None:
    plan = plan_for(facts(sysctls={key: "0"}), profile(sysctl={key: "1"}))
    assert findings(plan, "SWITCHED_OFF")
    assert change(plan, key) is None
    refused = refusal(plan, key)
    assert refused is not None
    assert "never set here" in refused.why.sentence


def test_the_backlog_doubles_only_while_packets_are_dropped() -> None:
    key = "net.core.netdev_max_backlog"
    seen = on_host(facts(), softnet_dropped=110, softnet_squeezed=0)
    assert change(plan_for(seen), key) is None
    assert change(plan_for(seen, earlier={"softnet.dropped": 110}), key) is None
    grown = change(plan_for(seen, earlier={"softnet.dropped": 100}), key)
    assert grown is not None
    assert grown.wanted == "2000"
    assert grown.evidence == (Counter("softnet.dropped", 110),)
    large = on_host(facts(sysctls={key: "16384"}), softnet_dropped=110)
    assert change(plan_for(large, earlier={"softnet.dropped": 100}), key) is None


def test_the_budget_rises_only_above_one_early_end_a_second_and_cpu() -> None:
    key = "net.core.netdev_budget"
    seen = on_host(facts(), softnet_squeezed=500, cpus=Cpus(count=4))
    assert change(plan_for(seen, earlier={"softnet.squeezed": 100}, age_s=100), key) is None
    assert only(plan_for(seen, earlier={"softnet.squeezed": 99}, age_s=100), key) == "600"


def test_in_a_namespace_node_wide_keys_are_not_asked_for() -> None:
    absent = {
        "net.core.netdev_max_backlog": ABSENT,
        "net.core.netdev_budget": ABSENT,
        "net.core.netdev_budget_usecs": ABSENT,
    }
    seen = on_host(facts(sysctls=absent), softnet_dropped=110, softnet_squeezed=10_000)
    plan = plan_for(seen, earlier={"softnet.dropped": 0, "softnet.squeezed": 0})
    assert not [
        one for one in (*plan.changes, *plan.refusals) if getattr(one, "subject", "").startswith("net.core.netdev")
    ]


def test_busy_polling_is_told() -> None:
    assert findings(plan_for(facts(sysctls={"net.core.busy_poll": "50"})), "BUSY_POLLING")


def test_somaxconn_follows_the_world_size_of_large_jobs_alone() -> None:
    assert change(plan_for(facts(), profile(world_size=1024)), "net.core.somaxconn") is None
    assert only(plan_for(facts(), profile(world_size=8192)), "net.core.somaxconn") == "8192"


def test_neighbour_thresholds_rise_together_from_the_largest_down() -> None:
    plan = plan_for(on_host(facts(), neighbours=900))
    keys = [one.knob.key for one in plan.changes if "gc_thresh" in one.knob.key]
    assert keys == [f"net.ipv4.neigh.default.gc_thresh{n}" for n in (3, 2, 1)]
    assert not [one for one in plan_for(on_host(facts(), neighbours=800)).changes if "gc_thresh" in one.knob.key]


def test_a_site_key_that_is_not_there_yet_is_pending() -> None:
    plan = plan_for(facts(), profile(sysctl={"net.netfilter.nf_conntrack_max": "262144", "net.core.nonsense": "1"}))
    codes = {one.subject: one.code for one in plan.refusals}
    assert codes["net.netfilter.nf_conntrack_max"] is RefusalCode.PENDING
    assert codes["net.core.nonsense"] is RefusalCode.UNSUPPORTED


def test_a_site_key_stands_in_for_the_rule() -> None:
    plan = plan_for(facts(rtt_us=50_000), profile(sysctl={RMEM: "4096 131072 8388608"}))
    assert [one.wanted for one in plan.changes if one.knob.key == RMEM] == ["4096 131072 8388608"]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [("7200", "é"), ("1", "99999999999999999999999"), ("1", "1 2 3"), ("4096 87380", "4096"), ("1", "on")],
)
def test_a_site_value_that_an_apply_would_refuse_is_an_error_and_not_offered(found: str, wanted: str) -> None:
    key = "net.ipv4.tcp_keepalive_time"
    plan = plan_for(facts(sysctls={key: found}), profile(sysctl={key: wanted}))
    refused = refusal(plan, key)
    assert change(plan, key) is None
    assert refused is not None
    assert (refused.code, refused.wanted) == (RefusalCode.ERROR, wanted)
    assert "wanted" in refused.why.sentence
