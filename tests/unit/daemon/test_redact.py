"""No secret survives, whatever stands around it. Secrets here are made up by hypothesis."""

import string
import time

import pytest
from clockgated.ctl.redact import REDACTED, redact
from hypothesis import given
from hypothesis import strategies as st

# Never part of the words around it, so that finding it means a leak.
SECRETS = st.text(alphabet=string.ascii_letters + string.digits, min_size=6, max_size=40).map(lambda s: f"Zq{s}9x")
ODD_SECRETS = st.text(
    alphabet=st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\"'\\"), min_size=6, max_size=30
).map(lambda s: f"Zq{s}9x")
NAMES = st.sampled_from(
    ["password", "PASSWD", "ntp_secret", "api_key", "api-key", "apiKey", "hub.token", "webhook_url", "access_key",
     "client_secret", "Authorization", "private_key", "credentials", "cookie"]
)  # fmt: skip
SURROUNDINGS = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\"'[]"), max_size=40)


@given(SURROUNDINGS, NAMES, ODD_SECRETS, st.sampled_from(["{} = {}", "{}={}", "{}: {}", '{} = "{}"', "{}: '{}'"]))
def test_values_of_keys_that_sound_secret_never_appear(before: str, name: str, secret: str, form: str) -> None:
    assert secret not in redact(f"{before}\n{form.format(name, secret)}\nmode = 1\n")


@given(NAMES, st.lists(SECRETS, min_size=1, max_size=4), st.sampled_from(['"""\n{}\n"""', "'''{}'''", "[{}]", '"""{}']))
def test_values_over_several_lines_never_appear(name: str, secrets: list[str], form: str) -> None:
    inner = ",\n".join(f'"{one}"' for one in secrets) if form == "[{}]" else "\n".join(secrets)
    redacted = redact(f"{name} = {form.format(inner)}\n")
    assert not any(secret in redacted for secret in secrets)


@given(NAMES, SECRETS)
def test_values_in_json_never_appear_and_the_rest_stays(name: str, secret: str) -> None:
    redacted = redact(f'{{"mode": "auto", "{name}": "{secret}", "state": "SYNCHRONIZED"}}')
    assert secret not in redacted
    assert '"mode": "auto"' in redacted
    assert '"state": "SYNCHRONIZED"' in redacted


@given(SURROUNDINGS, ODD_SECRETS, SECRETS, st.sampled_from(["https", "http", "ftp", "postgresql+asyncpg"]))
def test_logins_and_paths_of_urls_never_appear(before: str, password: str, path: str, scheme: str) -> None:
    login = f"{scheme}://user:{password}@example.net:8080/ok"
    # What ends a URL ends its password too: such a login is none.
    if not set(password) & set("<>"):
        assert password not in redact(f"{before} {login}\n")
    redacted = redact(f"{before} {scheme}://hooks.example.net/services/{path}?key={path}\n")
    assert path not in redacted
    assert "://hooks.example.net/" in redacted


@given(st.text(alphabet=string.ascii_letters + string.digits + "+/=\n", min_size=20, max_size=200), st.booleans())
def test_private_keys_never_appear(body: str, closed: bool) -> None:
    end = "-----END EC PRIVATE KEY-----\n" if closed else ""
    redacted = redact(f"a certificate follows\n-----BEGIN EC PRIVATE KEY-----\n{body}\n{end}")
    assert redacted.strip() == f"a certificate follows\n{REDACTED}"


@given(st.integers(1, 65535), st.sampled_from(["", "MD5 ", "SHA1 ", "SHA256 ", "AES128 ", "M "]), SECRETS)
def test_lines_of_key_files_never_appear(number: int, kind: str, secret: str) -> None:
    for key in (secret, f"HEX:{secret}", f"ASCII:{secret}"):
        assert secret not in redact(f"# keys\n{number} {kind}{key}\n")


@pytest.mark.parametrize(
    "token",
    [
        "hf_" + "a1B2" * 8,
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1_B" * 8,
        "glpat-" + "a1-B" * 5,
        "xoxb-123456789-abcdef",
        "AKIA" + "ABCD2345" * 2,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    ],
)
def test_tokens_of_known_shape_never_appear(token: str) -> None:
    assert token not in redact(f"started with {token} as argument")


@given(SECRETS)
def test_secrets_on_command_lines_and_in_headers_never_appear(secret: str) -> None:
    for text in (f"run --hub_token {secret} --mode auto", f"--password={secret} x", f"it sent Bearer {secret} again"):
        assert secret not in redact(text)


@given(st.text())
def test_any_text_is_taken_and_redacting_twice_is_redacting_once(text: str) -> None:
    assert redact(redact(text)) == redact(text)


def test_what_helps_to_find_a_fault_stays() -> None:
    text = (
        '[api]\nsocket = "/run/clockgate/clockgate.sock"\n[ntp]\nservers = ["10.0.0.1"]\n'
        'key_file = "/etc/clockgate/ntp.keys"\nnts_server_key = "/etc/clockgate/ntp.key"\n'
        "bound 142 us, epoch 3, plan_hash 0123456789abcdef\n"
    )
    assert redact(text) == text


@pytest.mark.parametrize(
    "piece", ["x", "-", "a-", "password", "token=", 'key = ["', "://", "https://a@", "1 ", "eyJ", "\n"]
)
def test_a_flood_is_redacted_in_time(piece: str) -> None:
    flood = piece * (60_000 // len(piece))
    began_ns = time.thread_time_ns()
    redact(flood)
    # A pattern that looks at each character from each place before it takes minutes here.
    assert time.thread_time_ns() - began_ns < 20e9
