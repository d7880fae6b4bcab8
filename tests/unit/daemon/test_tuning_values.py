from clockgated.tuning import values
from clockgated.tuning.values import INT_MAX, MIB, buffer_size, value_problem
from hypothesis import given
from hypothesis import strategies as st

rates = st.integers(1_000_000, 800_000_000_000)
times = st.integers(1, 2_000_000)
sizes = st.integers(4096, INT_MAX)


def size(
    link_bps: int, rtt_us: int, current: int, *, limit: int = 512 * MIB, memory: int | None = None, flows: int = 16
) -> int:
    return buffer_size(
        link_bps=link_bps, rtt_us=rtt_us, current=current, limit=limit, flows=flows, tcp_memory_bytes=memory
    ).wanted


def test_need_is_twice_the_bandwidth_delay_product() -> None:
    assert values.need_bytes(100_000_000_000, 200) == 2 * 100_000_000_000 // 8 * 200 // 1_000_000
    assert values.need_bytes(10_000_000_000, 100_000) == 250_000_000


def test_the_default_of_six_mebibytes_covers_a_hall_at_100_gigabit() -> None:
    assert size(100_000_000_000, 200, 6 * MIB) == 8 * MIB  # twice the product: 4.8 MiB each way
    assert size(25_000_000_000, 200, 6 * MIB) == 6 * MIB


@given(rates, times, sizes, sizes, st.tuples(st.none() | st.integers(0, 1 << 45), st.integers(1, 1000)))
def test_a_buffer_is_only_raised_and_stays_within_its_ceilings(
    link_bps: int, rtt_us: int, current: int, limit: int, shared: tuple[int | None, int]
) -> None:
    memory, flows = shared
    wanted = size(link_bps, rtt_us, current, limit=limit, memory=memory, flows=flows)
    assert current <= wanted <= INT_MAX
    if wanted > current:
        assert wanted <= limit
        assert memory is None or wanted * flows <= memory // 4
        assert wanted < 2 * values.need_bytes(link_bps, rtt_us) or wanted == 1


@given(rates, times, times, sizes)
def test_a_longer_path_never_needs_less(link_bps: int, first_us: int, second_us: int, current: int) -> None:
    low, high = sorted((first_us, second_us))
    assert size(link_bps, low, current) <= size(link_bps, high, current)


def test_what_holds_a_buffer_down_is_named() -> None:
    held = buffer_size(
        link_bps=100_000_000_000, rtt_us=100_000, current=4 * MIB, limit=512 * MIB, flows=16, tcp_memory_bytes=4 << 30
    )
    assert held.wanted == 64 * MIB
    assert "16 connections" in held.limited_by


def test_a_huge_value_found_never_overflows() -> None:
    assert size(400_000_000_000, 1_000_000, 1_734_723_440) == 1_734_723_440
    assert size(400_000_000_000, 1_000_000, 1_734_723_440, limit=INT_MAX + 10**10) == INT_MAX


def test_the_flow_is_a_window_a_round_trip_and_at_most_the_link() -> None:
    assert values.flow_bps(1_000_000, 100_000, 10**12) == 80_000_000
    assert values.flow_bps(1_000_000, 1, 10**9) == 10**9


def test_nonsense_that_the_kernel_takes_is_refused() -> None:
    for bad in ("4096 131072", "4096 131072 6291456 7", "4096 131072 8192", "4096 131072 2147483648", "a b c", ""):
        assert value_problem("net.ipv4.tcp_rmem", bad) is not None, bad
    assert value_problem("net.ipv4.tcp_rmem", "4096 131072 6291456") is None
    assert value_problem("net.ipv4.tcp_mtu_probing", "9") is not None
    assert value_problem("net.ipv4.tcp_slow_start_after_idle", "7") is not None
    assert value_problem("net.ipv4.ip_local_port_range", "51000 50000") is not None


def test_a_typo_in_the_congestion_control_is_named_with_what_was_meant() -> None:
    problem = value_problem("net.ipv4.tcp_congestion_control", "brr", ("reno", "cubic", "bbr"))
    assert problem is not None
    assert "did you mean 'bbr'" in problem


@given(
    st.sampled_from(["net.ipv4.tcp_rmem", "net.core.somaxconn", "net.ipv4.tcp_congestion_control", "x.y"]), st.text()
)
def test_checking_a_value_never_raises(key: str, value: str) -> None:
    value_problem(key, value, ("cubic",))
