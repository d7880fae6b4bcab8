import contextlib
import re
from pathlib import Path

import pytest
from clockgated import config
from clockgated.config import Config
from clockgated.errors import ConfigError
from clockgated.manage.settings import LocalReference, ManageSettings, Mode, NtpSettings, PtpSettings, TimeServer
from hypothesis import given
from hypothesis import strategies as st

SAMPLE = Path(__file__).parents[3] / "packaging/etc/clockgated.toml"
FILE = "/etc/clockgate/x.toml"


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config.parse(text.encode(), FILE)
    return str(caught.value).splitlines()


def test_empty_file_means_the_defaults() -> None:
    assert config.parse(b"", FILE) == Config()


def sample_keys() -> set[tuple[str, str]]:
    """Section and key of each line of the shipped sample, "# key" for one that is commented out."""
    section, keys = "", set()
    for line in SAMPLE.read_text().splitlines():
        if found := re.fullmatch(r"\[(\w+)\]", line):
            section = found[1]
        elif found := re.match(r"((?:# )?\w+) = ", line):
            keys.add((section, found[1]))
    return keys


def test_shipped_sample_states_exactly_the_defaults() -> None:
    # Not loaded: the tree may belong to somebody whose word root does not take.
    assert config.parse(SAMPLE.read_bytes(), FILE) == Config()
    assert sample_keys() == {
        (section, key if value is not None else f"# {key}")
        for section, values in vars(Config()).items()
        for key, value in vars(values).items()
    }


def test_examples_of_the_shipped_sample_are_valid() -> None:
    lines = [re.sub(r"^# (?=\w+ = )", "", line) for line in SAMPLE.read_text().splitlines()]
    read = config.parse("\n".join(lines).encode(), FILE)
    assert (read.clock.node_count, read.ntp.local, read.ptp.utc_offset_s) == (
        16,
        LocalReference(10, True, 0.1, 0.1, 300, 300),
        37,
    )


def test_default_mode_manages_where_it_can_and_takes_nothing_over() -> None:
    assert (Config().managed.mode, Config().managed.take_over) == (Mode.AUTO, False)


def test_settings_of_clock_management_have_one_owner_each() -> None:
    text = b"""
        [clock]
        mode = "ptp+ntp"
        take_over = true
        max_drift_ppm = 20
        [ntp]
        servers = ["10.0.0.1"]
        [ptp]
        interfaces = ["eth1"]
        [folders]
        run = "/run/x"
    """
    read = config.parse(text, FILE)
    ntp, ptp = NtpSettings(servers=(TimeServer("10.0.0.1"),)), PtpSettings(interfaces=("eth1",))
    assert read.managed == ManageSettings(Mode.PTP_NTP, True, 20.0, ntp, ptp)
    assert read.places.run == "/run/x"


def test_problems_of_clock_management_are_told_like_all_others_and_with_them() -> None:
    lines = problems("[clock]\nsync_cycles = 0\n[ntp]\nservres = []\nservers = [{ host = 3 }]\n[ptp]\ndomain = true\n")
    assert [line.removeprefix(f"{FILE}: ").split(" is ")[0] for line in lines] == [
        "[clock] sync_cycles = 0: wanted a whole number from 1 to 1000",
        "[ntp] servers[0].host",
        "[ntp] servres",
        "[ptp] domain",
    ]
    assert problems("ntp = 3.5\n") == [f"{FILE}: ntp = 3.5: wanted a section [ntp]"]


def test_a_mode_that_lacks_what_it_needs_is_refused() -> None:
    (line,) = problems("[clock]\nmode = 'ntp'\n")
    assert line.startswith(f'{FILE}: [clock] mode is "ntp" but ntp.servers and ntp.pools are empty')
    (line,) = problems("[ptp]\ndomain = 256\n")
    assert line == f"{FILE}: [ptp] domain is 256: give a value from 0 to 255"


def test_a_named_source_belongs_to_observing() -> None:
    (line,) = problems("[clock]\nsource = 'kernel'\n")
    assert line.startswith(f'{FILE}: [clock] source = "kernel": wanted mode = "observe" beside it')


def test_folders_that_no_generated_file_could_name_are_refused() -> None:
    (line,) = problems("[folders]\nrun = '/run/a b'\n")
    assert line.startswith(f"{FILE}: [folders] the run folder is '/run/a b'")


def test_values_are_read_with_their_types() -> None:
    read = config.parse(b"[clock]\nmax_bound_ms = 5\nsync_cycles = 1\n[api]\nsocket = '/tmp/a.sock'\n", FILE)
    assert read.clock.max_bound_ms == 5.0
    assert isinstance(read.clock.max_bound_ms, float)
    assert read.clock.sync_cycles == 1
    assert read.api.socket == Path("/tmp/a.sock")
    assert read.clock.reading_ttl_s == Config().clock.reading_ttl_s


def test_key_with_the_wrong_unit_is_refused_with_the_right_one() -> None:
    assert problems("[clock]\nmax_bound_us = 50000\n") == [
        f"{FILE}: [clock] max_bound_us: unknown key; did you mean max_bound_ms?"
    ]


def test_key_of_another_section_is_named_with_its_section() -> None:
    assert problems("[clock]\nchronyc = 'x'\n") == [f"{FILE}: [clock] chronyc: unknown key; it belongs to [chrony]"]
    assert problems("socket = '/x'\n") == [f"{FILE}: socket: outside of any section; wanted below [chrony] or [api]"]


def test_unlike_anything_key_lists_the_known_ones() -> None:
    assert problems("[recorded]\nzzz = 1\n") == [f"{FILE}: [recorded] zzz: unknown key; known: file"]


def test_unknown_section_is_refused_with_the_nearest_one() -> None:
    assert problems("[chorny]\n") == [f"{FILE}: [chorny]: unknown section; did you mean [chrony]?"]
    assert problems("clock = 3\n") == [f"{FILE}: clock = 3: wanted a section [clock]"]


@pytest.mark.parametrize("value", ["true", '"50"', "[50]", "nan", "inf", "-inf", "0", "-1", "1e9", "1979-05-27"])
def test_a_limit_must_be_a_finite_number_in_range(value: str) -> None:
    (line,) = problems(f"[clock]\nmax_bound_ms = {value}\n")
    assert line.startswith(f"{FILE}: [clock] max_bound_ms = ")
    assert line.endswith("wanted a number from 0.001 to 60000")


@pytest.mark.parametrize("value", ["true", "1.0", '"3"', "0"])
def test_a_count_must_be_a_whole_number(value: str) -> None:
    assert problems(f"[clock]\nsync_cycles = {value}\n") == [
        f"{FILE}: [clock] sync_cycles = {value}: wanted a whole number from 1 to 1000"
    ]


@pytest.mark.parametrize("value", ["PTP", "chrony", ""])
def test_mode_that_does_not_exist_is_refused_with_those_that_do(value: str) -> None:
    assert problems(f'[clock]\nmode = "{value}"\n') == [
        f'{FILE}: [clock] mode = "{value}": wanted one of "observe", "ntp", "ptp", "ptp+ntp", "auto"'
    ]


@pytest.mark.parametrize("value", ["relative.sock", "/tmp/" + "x" * 103, "/tmp/", "", "/a\\u0000b"])
def test_socket_path_must_be_absolute_and_short_enough(value: str) -> None:
    (line,) = problems(f'[api]\nsocket = "{value}"\n')
    assert line.endswith("wanted an absolute path of at most 107 bytes")


def test_longest_socket_path_is_accepted() -> None:
    path = "/tmp/" + "x" * 102
    assert config.parse(f'[api]\nsocket = "{path}"\n'.encode(), FILE).api.socket == Path(path)


def test_all_problems_are_reported_at_once() -> None:
    lines = problems("[clock]\nmax_bound_us = 1\nsync_cycles = true\n[api]\nmax_streams = 'x'\n[what]\n")
    assert [line.split(": ")[1].split(" =")[0] for line in lines] == [
        "[what]", "[clock] max_bound_us", "[clock] sync_cycles", "[api] max_streams"
    ]  # fmt: skip


def test_reading_must_outlive_the_slowest_cycle() -> None:
    observing = "[clock]\nmode = 'observe'\nreading_ttl_s = {}\n[chrony]\ntimeout_s = 1\n"
    (line,) = problems(observing.format(2))
    assert "reading_ttl_s = 2: wanted more than 2" in line
    config.parse(observing.format(2.1).encode(), FILE)
    (line,) = problems(observing.format(2.1).replace("observe", "ptp"))
    assert "wanted more than 2.5, the sum of [clock] poll_interval_s and [chrony] timeout_s and 0.5 for ptp4l" in line


def test_a_job_cannot_have_more_leases_than_there_are() -> None:
    (line,) = problems("[leases]\nmax_leases = 4\nmax_per_job = 5\n")
    assert line == f"{FILE}: [leases] max_per_job = 5: wanted at most max_leases, which is 4"
    (line,) = problems("[leases]\nmax_leases = 8\n")
    assert "max_per_job = 16: wanted at most max_leases, which is 8" in line


def test_recorded_source_needs_its_file() -> None:
    (line,) = problems("[clock]\nmode = 'observe'\nsource = 'recorded'\n")
    assert line.startswith(f'{FILE}: [recorded] file = "": wanted the path of a recording')


def test_two_sockets_need_two_paths() -> None:
    (line,) = problems("[api]\nsocket = '/a/b'\nadmin_socket = '/a/b'\n")
    assert "admin_socket" in line


def test_malformed_toml_names_the_line() -> None:
    (line,) = problems("[clock]\nmax_bound_ms 50\n")
    assert line.startswith(f"{FILE}: not valid TOML: ")
    assert "line 2" in line


def test_bytes_that_are_not_text_name_the_line() -> None:
    with pytest.raises(ConfigError, match=r"line 2: byte 0xff is not UTF-8"):
        config.parse(b"[clock]\n# \xff\n", FILE)


def test_long_value_is_cut_short_in_the_message() -> None:
    (line,) = problems("[clock]\nmode = '" + "y" * 5000 + "'\n")
    assert len(line) < 250


def test_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml: no such file; create it, or leave out --config"):
        config.load(tmp_path / "no.toml")


def test_folder_in_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        config.load(tmp_path)


def test_without_a_file_anywhere_the_defaults_hold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(config, "DEFAULT_FILE", tmp_path / "absent.toml")
    assert config.load(None) == Config()
    (tmp_path / "absent.toml").write_text("[api]\nmax_streams = 2\n")
    assert config.load(None).api.max_streams == 2


@given(st.binary(max_size=300))
def test_any_bytes_give_a_config_or_a_config_error(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        config.parse(data, FILE)


toml_values = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text("aé'0", max_size=5).map(repr),
)


@given(st.dictionaries(st.sampled_from([*vars(Config().clock), "bogus"]), toml_values))
def test_any_values_of_known_keys_give_a_config_or_a_config_error(values: dict[str, object]) -> None:
    text = "[clock]\n" + "".join(f"{k} = {str(v).lower()}\n" for k, v in values.items())
    with contextlib.suppress(ConfigError):
        config.parse(text.encode(), FILE)


@pytest.mark.parametrize(
    ("section", "key"), [("tuning", "rtt_ms"), ("clock", "sync_cycles"), ("clock", "max_bound_ms"), ("ptp", "domain")]
)
def test_a_number_too_long_to_write_out_is_a_problem_and_no_crash(section: str, key: str) -> None:
    assert problems(f"[{section}]\n{key} = 0x{'f' * 10_000}\n") == [
        f"{FILE}: not valid TOML: a whole number beyond 64 bits"
    ]


def test_tcp_has_a_port_of_its_own_and_takes_addresses_alone() -> None:
    def tcp(text: str) -> str:
        return str(config.parse(f'[api]\ntcp = "{text}"\n'.encode(), FILE).api.tcp)

    assert tcp("") == "None"
    assert tcp("127.0.0.1") == "127.0.0.1:9776"
    assert tcp("127.0.0.1:1") == "127.0.0.1:1"
    assert tcp("[::1]:65535") == "[::1]:65535"
    assert tcp("[::1]") == "[::1]:9776"
    for text in ("node1:9776", "localhost", "127.0.0.1:0", "127.0.0.1:65536", "::1", "1.2.3", "127.0.0.1:", "[::1"):
        (line,) = problems(f"[api]\ntcp = '{text}'\n")
        assert "wanted an IP address of this machine" in line


def test_tcp_for_other_machines_needs_every_file_of_tls() -> None:
    (line,) = problems("[api]\ntcp = '10.0.0.5'\ntls_key = '/k'\n")
    assert '[api] tcp = "10.0.0.5:9776": wanted tls_certificate and tls_client_ca beside it' in line
    (line,) = problems("[api]\ntcp = '127.0.0.1'\ntls_key = '/k'\n")
    assert "wanted tls_certificate and tls_client_ca beside it" in line
    (line,) = problems("[api]\ntcp = '127.0.0.1'\ntls_clients = ['trainer']\n")
    assert "tls_clients: wanted tls_client_ca beside it" in line
    files = "tls_certificate = '/c'\ntls_key = '/k'\ntls_client_ca = '/a'\n"
    read = config.parse(f"[api]\ntcp = '10.0.0.5'\n{files}".encode(), FILE)
    assert read.api.tls is not None
    assert read.api.tls.key == Path("/k")
