"""The variables that ranks start with: what follows from facts, and never over what a person has set."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from clockgate_trainer.launch_environment import LaunchFacts, decide
from clockgate_trainer.launch_facts import active_hcas, look
from hypothesis import given
from hypothesis import strategies as st

NODE = LaunchFacts(
    cores=16,
    ranks_here=8,
    nodes=2,
    cuda=True,
    endpoint_host="10.0.0.5",
    endpoint_interface="ens5",
    interfaces=("docker0", "ens5", "lo"),
)
NEVER = {"NCCL_ALGO", "NCCL_PROTO", "NCCL_IB_GID_INDEX", "NCCL_IB_DISABLE"}


def chosen(facts: LaunchFacts) -> dict[str, str]:
    return {setting.name: setting.value for setting in decide(facts).settings}


def test_nodes_meet_over_the_interface_that_leads_to_the_endpoint() -> None:
    assert chosen(NODE) == {
        "OMP_NUM_THREADS": "2",
        "NCCL_DEBUG": "WARN",
        "NCCL_SOCKET_IFNAME": "=ens5",
        "GLOO_SOCKET_IFNAME": "ens5",
    }


def test_one_node_and_one_without_a_gpu_need_less() -> None:
    assert set(chosen(replace(NODE, nodes=1))) == {"OMP_NUM_THREADS", "NCCL_DEBUG"}
    assert set(chosen(replace(NODE, cuda=False))) == {"OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME"}
    assert chosen(replace(NODE, cores=2))["OMP_NUM_THREADS"] == "1"


def test_an_endpoint_on_loopback_sets_no_interface_and_is_told() -> None:
    facts = replace(NODE, endpoint_interface="lo", endpoint_host="node1")
    assert "NCCL_SOCKET_IFNAME" not in chosen(facts)
    assert any("node1 is a loopback address" in warning for warning in decide(facts).warnings)


def test_what_a_person_or_nccl_conf_has_set_is_kept() -> None:
    mine = {"OMP_NUM_THREADS": "4", "NCCL_SOCKET_IFNAME": "ens", "NCCL_DEBUG": "INFO"}
    assert chosen(replace(NODE, environment=mine)) == {"GLOO_SOCKET_IFNAME": "ens5"}
    assert "NCCL_SOCKET_IFNAME" not in chosen(replace(NODE, nccl_conf=("NCCL_SOCKET_IFNAME",)))


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("NCCL_SOCKET_IFNAME", "eth0", True),
        ("NCCL_SOCKET_IFNAME", "ens", False),
        ("NCCL_SOCKET_IFNAME", "=ens", True),
        ("NCCL_SOCKET_IFNAME", "=ens5", False),
        ("NCCL_SOCKET_IFNAME", "^docker,lo", False),
        ("NCCL_SOCKET_IFNAME", "^docker,lo,ens", True),
        ("GLOO_SOCKET_IFNAME", "ens", True),
        ("GLOO_SOCKET_IFNAME", "eth0,ens5", False),
        ("NCCL_ALGO", "Ring", True),
        ("NCCL_IB_GID_INDEX", "3", True),
    ],
)
def test_a_copied_export_that_fits_nothing_here_is_told(name: str, value: str, told: bool) -> None:
    warnings = decide(replace(NODE, environment={name: value})).warnings
    assert [warning for warning in warnings if name in warning and value in warning] == list(warnings)
    assert bool(warnings) is told


def test_a_disabled_fabric_with_active_ports_is_told(tmp_path: Path) -> None:
    for name, state in (("mlx5_0", "4: ACTIVE\n"), ("mlx5_1", "1: DOWN\n")):
        port = tmp_path / name / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(state)
    found = tuple(active_hcas(tmp_path))
    assert found == ("mlx5_0",)
    off = {"NCCL_IB_DISABLE": "1"}
    assert any("mlx5_0" in told for told in decide(replace(NODE, active_hcas=found, environment=off)).warnings)
    assert not decide(replace(NODE, environment=off)).warnings


@given(
    st.builds(
        LaunchFacts,
        cores=st.integers(1, 512),
        ranks_here=st.integers(1, 16),
        nodes=st.integers(1, 64),
        cuda=st.booleans(),
        endpoint_host=st.text(max_size=5),
        endpoint_interface=st.none() | st.sampled_from(["lo", "eth0", "ib0"]),
        interfaces=st.lists(st.text(min_size=1, max_size=4)).map(tuple),
        environment=st.dictionaries(
            st.sampled_from([*NEVER, "OMP_NUM_THREADS", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"]),
            st.text(max_size=6),
        ),
    )
)
def test_nothing_is_forced_and_nothing_set_is_touched(facts: LaunchFacts) -> None:
    names = set(chosen(facts))
    assert not names & NEVER
    assert not names & set(facts.environment)


def test_this_machine_is_looked_at_without_a_word_sent() -> None:
    facts = look(ranks_here=2, nodes=2, endpoint_host="127.0.0.1", cuda=False, environment={})
    assert facts.cores == len(os.sched_getaffinity(0))
    assert facts.endpoint_interface == "lo"
    assert "lo" in facts.interfaces
    unknown = look(ranks_here=1, nodes=2, endpoint_host="no such host", cuda=False, environment={})
    assert unknown.endpoint_interface is None
