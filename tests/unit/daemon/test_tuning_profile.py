import os
import re
import tomllib
from pathlib import Path

import pytest
from clockgated.errors import ConfigError
from clockgated.tuning.profile import BUILT_IN, Profile, load, parse
from hypothesis import given
from hypothesis import strategies as st


def site(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.toml").write_text(text)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_profile_can_be_loaded(name: str, tmp_path: Path) -> None:
    loaded = load(name, tmp_path)
    assert loaded.name == name
    assert loaded.summary


def test_none_sets_nothing(tmp_path: Path) -> None:
    assert load("none", tmp_path) == Profile("none", summary=load("none", tmp_path).summary)


def test_a_site_adds_a_profile_without_code(tmp_path: Path) -> None:
    site(tmp_path, "lab", 'extends = "wan"\nrings = false\nmtu_bytes = 9000\n[sysctl]\n"vm.swappiness" = 10\n')
    lab = load("lab", tmp_path)
    assert (lab.name, lab.socket_buffers, lab.rings, lab.mtu_bytes) == ("lab", True, False, 9000)
    assert lab.congestion_control == "bbr"
    assert lab.sysctl == {"vm.swappiness": "10"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ring = true", "ring: unknown key; did you mean rings?"),
        ("rings = 1", "rings = '1': wanted true or false"),
        ("flows = 0", "flows = '0': wanted a whole number from 1 to 100000"),
        ('links = "eth0"', "links = 'eth0': wanted a list"),
        ("hugepages = 4", "hugepages_consumer"),
        ('[sysctl]\n"../../etc/passwd" = "1"', "wanted a table of sysctl keys"),
        ('[sysctl]\n"net..x" = "1"', "wanted a table of sysctl keys"),
        ('extends = "tcpp"', "profile tcpp: no such file"),
        ("= 1", "not valid TOML"),
    ],
)
def test_a_mistake_is_told_with_file_key_and_what_was_wanted(text: str, words: str, tmp_path: Path) -> None:
    site(tmp_path, "lab", text)
    with pytest.raises(ConfigError) as caught:
        load("lab", tmp_path)
    assert words in str(caught.value)
    assert "lab.toml" in str(caught.value) or "tcpp" in str(caught.value)


def test_the_manuals_example_is_a_profile_and_the_manual_names_every_key(tmp_path: Path) -> None:
    manual = (Path(__file__).parents[3] / "docs/tuning.md").read_text()
    site(tmp_path, "lab", manual.partition("```toml\n")[2].partition("```")[0])
    lab = load("lab", tmp_path)
    assert (lab.path_mbps, lab.sysctl) == (10_000, {"net.ipv4.tcp_fin_timeout": "30"})
    named = set(re.findall(r"[a-z_]+", manual))
    assert set(Profile.__dataclass_fields__) - {"name"} <= named


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    site(tmp_path, "lab", "rings = 1\nflows = 0\n")
    with pytest.raises(ConfigError) as caught:
        load("lab", tmp_path)
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("name", ["../etc/x", "", "A", "auto", "a/b", "x" * 80, "a\0b"])
def test_a_name_cannot_leave_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="wanted a name of lower-case letters"):
        load(name, tmp_path)


def test_profiles_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    site(tmp_path, "a", 'extends = "b"')
    site(tmp_path, "b", 'extends = "a"')
    with pytest.raises(ConfigError, match="a -> b -> a"):
        load("a", tmp_path)


def test_a_site_file_cannot_hide_a_built_in_profile(tmp_path: Path) -> None:
    site(tmp_path, "tcp", "rings = false\n")
    assert load("tcp", tmp_path).rings is True


@given(st.binary())
def test_odd_bytes_give_a_clear_error_alone(data: bytes) -> None:
    try:
        parse(data, "x.toml", Profile("x"))
    except ConfigError as error:
        message = str(error)
    else:
        message = "x.toml"
    assert "x.toml" in message


@given(
    st.dictionaries(
        st.sampled_from([*Profile.__dataclass_fields__, "extends"]), st.none() | st.booleans() | st.integers()
    )
)
def test_any_value_is_read_or_refused_clearly(values: dict[str, object]) -> None:
    lines = [f"{key} = {str(value).lower()}" for key, value in values.items() if value is not None]
    assert isinstance(tomllib.loads("\n".join(lines)), dict)
    try:
        parse("\n".join(lines).encode(), "x.toml", Profile("x"))
    except ConfigError as error:
        message = str(error)
    else:
        message = "x.toml"
    assert "x.toml" in message


@pytest.mark.parametrize("text", ["flows = NUMBER", '[sysctl]\n"vm.swappiness" = NUMBER', "extends = NUMBER"])
def test_a_number_that_is_too_long_to_be_spelled_is_told(text: str, tmp_path: Path) -> None:
    site(tmp_path, "lab", text.replace("NUMBER", "0x" + "f" * 10_000))
    with pytest.raises(ConfigError, match=r"a number of thousands of digits.*: wanted"):
        load("lab", tmp_path)


@pytest.mark.timeout(10)
def test_a_pipe_or_a_device_in_place_of_a_profile_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "endless.toml").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        with pytest.raises(ConfigError, match="is no regular file"):
            load(name, tmp_path)
