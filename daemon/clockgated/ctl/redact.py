"""Text without secrets: what may leave the node in a support bundle. Pure; rather takes too much than too little."""

import re

REDACTED = "[redacted]"

_SECRET_WORD = (
    r"pass(?:word|wd|phrase|code)?|pwd|secrets?|tokens?|credentials?|cookies?|bearer|authori[sz]ation|signature"
    r"|webhooks?|hook[_-]?url|api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|client[_-]?key|dsn"
)
# A string of TOML, JSON or YAML over one line or many, closed or not, a list, or the rest of the line.
_VALUE = (
    r'"""(?:(?!""")[\s\S])*(?:"""|\Z)'
    r"|'''(?:(?!''')[\s\S])*(?:'''|\Z)"
    r"|\[(?:\"(?:\\.|[^\"\\])*\"|'[^']*'|[^\]\"'])*\]"
    r'|"(?:\\.|[^"\\\n])*"(?=[\s,;}\])#]|\Z)'
    r"|'[^'\n]*'(?=[\s,;}\])#]|\Z)"
    r"|[^\n]*"
)
# Nothing here begins with a repetition: each pattern looks once at each character of a flood.
_ASSIGNMENT = re.compile(
    rf"""(?ix)
    (?P<name> (?:{_SECRET_WORD}) [\w.-]{{0,64}} ["']? [ \t]{{0,16}} (?: [=:] | is [ \t] ) [ \t]* )
    (?P<value> {_VALUE} )
    """
)
# As options on a command line: --token abc, without an equals sign.
_OPTION = re.compile(
    rf"(?i)(?P<name>(?<![\w-])-[\w-]{{0,40}}(?:{_SECRET_WORD})[\w-]{{0,40}}[ \t]+)(?P<value>\"[^\"\n]*\"|'[^'\n]*'|\S+)"
)
_HEADER = re.compile(r"(?i)\b(?P<name>(?:bearer|basic|digest|token)[ \t]+)(?P<value>[A-Za-z0-9._~+/=-]{6,})")
_PEM = re.compile(
    r"-----BEGIN [^\n-]*PRIVATE KEY[^\n-]*-----(?:(?!-----END)[\s\S])*(?:-----END [^\n-]*PRIVATE KEY[^\n-]*-----|\Z)"
)
# Of what follows "://" only the host stays: the path of a webhook is its password. A password may hold any character
# but a space, so the last @ ends it.
_URL = re.compile(r"(?P<scheme>(?:\bunix)?://)(?P<rest>[^\s\"'<>]+)")
# Lines of chrony's and ntpd's key files: number, hash, key; or number and key.
_KEY_LINE = re.compile(
    r"(?im)^(?P<name>[ \t]*\d+[ \t]+(?:(?:MD5|SHA\d[\w-]*|AES[\w-]*|TIGER|WHIRLPOOL|[AMNS])[ \t]+)?)"
    r"(?P<value>(?:HEX:|ASCII:)?[^\s:]{8,})[ \t]*$"
)
_CODED = re.compile(r"(?P<name>\b(?:HEX|ASCII):)(?P<value>\S+)")
_SHAPES = re.compile(
    r"hf_[A-Za-z0-9]{16,}|gh[opusr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|sk-[\w-]{16,}"
    r"|xox[a-z]-[\w-]{8,}|A[KS]IA[A-Z0-9]{12,}|AIza[\w-]{30,}|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"
)


def redact(text: str) -> str:
    """`text` with REDACTED in place of private keys, values of keys that sound secret, tokens and parts of URLs.

    Never raises. Redacting twice is redacting once.
    """
    text = _PEM.sub(REDACTED, text)
    text = _URL.sub(_without_login_and_path, text)
    for pattern in (_ASSIGNMENT, _OPTION, _HEADER, _KEY_LINE, _CODED):
        text = pattern.sub(_keep_name, text)
    return _SHAPES.sub(REDACTED, text)


def _keep_name(found: re.Match[str]) -> str:
    value = found["value"]
    if not value.strip() or value.strip().strip("\"',") in ("", "none", "None", "null", REDACTED):
        return found[0]
    return f"{found['name']}{REDACTED}"


def _without_login_and_path(found: re.Match[str]) -> str:
    scheme, rest = found["scheme"], found["rest"]
    if scheme == "unix://":
        return found[0]
    before_path, slash, path = rest.partition("/")
    if "@" in path:
        # A password with a slash in it: the host comes after the last @.
        before_path, slash, path = rest.rpartition("@")[0] + "@" + rest.rpartition("@")[2].partition("/")[0], "/", "x"
    login, at, host = before_path.rpartition("@")
    host = re.split(r"[?#]", host, maxsplit=1)[0]
    hidden = f"{REDACTED}@" if at and login else ""
    has_more = bool(path) or "?" in before_path or "#" in before_path
    return f"{scheme}{hidden}{host}" + (f"/{REDACTED}" if has_more else slash)
