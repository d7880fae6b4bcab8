"""Pure parser of `chronyc -c -n -m tracking sources sourcestats ntpdata`: four reports in one text, no separators.

Formats of chrony 3.5 to 4.8, as client.c prints them: no header, no quoting, every line ended, plain decimals.
Signs are turned here: chronyd's "system time" is the correction still to be made, positive when the clock is slow.
"""

import re
from dataclasses import replace

from clockgated.clock.model import Reason, ReasonCode
from clockgated.clock.report import ChronyReport, LeapStatus, SourceLine, Tracking, Upstream

_LONGEST_LINE = 1_000
_TRACKING_FIELDS = 14
_SOURCE_FIELDS = 10
_STATS_FIELDS = 8
# Names of reference clocks are four characters, each of which may be a comma.
_MOST_COMMAS = 4
# What chronyd says of a source without samples.
_NEVER_S = (1 << 32) - 1
# LastRx is cut to whole seconds and counts from the start of the sample's second; the span is rounded.
_ROUNDED_S = 2
# Up to 4.2; 4.3 to 4.5 (+ good RX); since 4.6 (+ four counts of kernel and hardware stamps).
_NTPDATA_FIELDS = (33, 34, 38)
_NTPDATA_REF_ID = 15

_REFUSAL = re.compile(r"5\d\d \S")
_REF_ID = re.compile(r"[0-9A-F]{8}")
_DECIMAL = re.compile(r"([+-]?)(\d{1,12})(?:\.(\d{1,9}))?")
_WHOLE = re.compile(r"[+-]?\d{1,10}")
_SECONDS = re.compile(r"\d{1,10}")
_REACH = re.compile(r"[0-7]{1,3}")
_LEAP = {
    "Normal": LeapStatus.NORMAL,
    "Insert second": LeapStatus.INSERT,
    "Delete second": LeapStatus.DELETE,
    "Not synchronised": LeapStatus.UNSYNCHRONISED,
    "Invalid": LeapStatus.INVALID,
}


class _GarbledError(Exception):
    """A line is not of a report; the message says why. Never leaves this file."""


def parse(output: bytes) -> ChronyReport | Reason:
    """The report, or the reason why there is none. Never raises, whatever the bytes are."""
    try:
        lines = _lines(output)
        if _REFUSAL.match(lines[0]):
            return Reason(ReasonCode.SOURCE_UNREACHABLE, f'chronyc said "{lines[0][:100]}"; is chronyd running here?')
        return _report(lines)
    except _GarbledError as error:
        return Reason(ReasonCode.SOURCE_GARBLED, str(error))


def _lines(output: bytes) -> list[str]:
    if not output:
        raise _GarbledError("chronyc printed nothing; wanted a report")
    if not output.endswith(b"\n"):
        raise _GarbledError("chronyc's last line is cut off; wanted a line end")
    raw_lines = output[:-1].split(b"\n")
    for number, raw in enumerate(raw_lines, 1):
        if len(raw) > _LONGEST_LINE:
            raise _GarbledError(f"line {number} of chronyc has {len(raw)} bytes; wanted at most {_LONGEST_LINE}")
        if not (raw.isascii() and raw.decode("ascii").isprintable()):
            raise _GarbledError(f"line {number} of chronyc holds other than printable ASCII: {raw[:60]!r}")
    return [raw.decode("ascii") for raw in raw_lines]


def _report(lines: list[str]) -> ChronyReport:
    tracking = _tracking(lines[0])
    sources: list[tuple[SourceLine, int]] = []
    spans_s: dict[str, int] = {}
    upstreams: list[Upstream] = []
    are_upstreams_refused = False
    for number, line in enumerate(lines[1:], 2):
        if _REFUSAL.match(line):
            # Only the last report may be refused: chronyd tells `ntpdata` to the command socket alone.
            if are_upstreams_refused or number != len(lines):
                raise _GarbledError(f'line {number} of chronyc is "{line[:60]}"; wanted a source')
            are_upstreams_refused = True
        elif line[:2] in ("^,", "=,", "#,"):
            if spans_s or upstreams:
                raise _GarbledError(f'line {number} of chronyc is a source after other reports: "{line[:60]}"')
            sources.append(_source(line, number))
        elif line.count(",") < _STATS_FIELDS + _MOST_COMMAS and not upstreams:
            name, span_s = _span_s(line, number)
            spans_s[name] = max(span_s, spans_s.get(name, 0))
        else:
            upstreams.append(_upstream(line, number))
    dated = tuple(_dated(source, age_s, spans_s) for source, age_s in sources)
    return ChronyReport(tracking, dated, None if are_upstreams_refused else tuple(upstreams))


def _dated(source: SourceLine, age_s: int, spans_s: dict[str, int]) -> SourceLine:
    """The source with the age of its oldest sample: that of the newest and the span of all."""
    if not spans_s or age_s >= _NEVER_S:
        return source
    if source.name in spans_s:
        return replace(source, oldest_sample_s=age_s + spans_s[source.name] + _ROUNDED_S)
    if source.is_selected or source.is_combined:
        raise _GarbledError(f"sourcestats has no line of {source.name[:40]}, which chronyd follows")
    return source


def _tracking(line: str) -> Tracking:
    fields = line.split(",")
    ref_id = _matched(_REF_ID, fields[0], "tracking: reference id")
    # The name of a reference clock is the printable part of its id and may hold commas, so both ends are read.
    extra = len(fields) - _TRACKING_FIELDS
    if extra not in (0, _commas(ref_id)):
        raise _GarbledError(f"tracking has {len(fields)} fields; wanted {_TRACKING_FIELDS}")
    name = ",".join(fields[1 : 2 + extra])
    stratum, ref_time, correction, last, rms, freq, residual, skew, delay, dispersion, interval, leap = fields[-12:]
    for label, text in (("RMS offset", rms), ("frequency", freq)):
        _scaled(text, 9, label)
    ref_wall_ns = _unsigned(ref_time, 9, "reference time")
    if leap not in _LEAP:
        raise _GarbledError(f'tracking: leap status is "{leap[:40]}"; wanted one of {", ".join(_LEAP)}')
    return Tracking(
        ref_id=ref_id,
        source_name=name,
        stratum=_whole(stratum, "stratum"),
        ref_wall_ns=ref_wall_ns or None,
        offset_ns=-_scaled(correction, 9, "system time"),
        last_offset_ns=_scaled(last, 9, "last offset"),
        residual_ppb=_scaled(residual, 3, "residual frequency"),
        skew_ppb=_unsigned(skew, 3, "skew"),
        root_delay_ns=_unsigned(delay, 9, "root delay"),
        root_dispersion_ns=_unsigned(dispersion, 9, "root dispersion"),
        update_interval_ns=_unsigned(interval, 9, "update interval"),
        leap_status=_LEAP[leap],
    )


def _source(line: str, number: int) -> tuple[SourceLine, int]:
    """A source, and the age of its newest sample, s."""
    fields = line.split(",")
    if not _SOURCE_FIELDS <= len(fields) <= _SOURCE_FIELDS + (_MOST_COMMAS if fields[0] == "#" else 0):
        raise _GarbledError(f"sources (line {number}) has {len(fields)} fields; wanted {_SOURCE_FIELDS}")
    stratum, poll, reach, last_rx, adjusted, measured, error = fields[-7:]
    if fields[1] not in ("*", "+", "-", "?", "x", "~"):
        raise _GarbledError(f'sources (line {number}): state is "{fields[1][:20]}"; wanted one of * + - ? x ~')
    for label, text in (("adjusted offset", adjusted), ("measured offset", measured), ("error", error)):
        _scaled(text, 9, label)
    poll_log2_s = _whole(poll, "poll")
    if not -10 <= poll_log2_s <= 24:
        raise _GarbledError(f"sources (line {number}): poll is {poll_log2_s}; wanted -10 to 24")
    source = SourceLine(
        name=",".join(fields[2:-7]),
        is_refclock=fields[0] == "#",
        is_selected=fields[1] == "*",
        stratum=_whole(stratum, "stratum"),
        poll_log2_s=poll_log2_s,
        reach=int(_matched(_REACH, reach, "reach"), 8),
        is_combined=fields[1] == "+",
    )
    return source, _seconds(last_rx, f"sources (line {number}): LastRx")


def _span_s(line: str, number: int) -> tuple[str, int]:
    """The name of a source and how far apart its oldest and its newest sample are, s."""
    fields = line.split(",")
    if len(fields) < _STATS_FIELDS:
        raise _GarbledError(f"sourcestats (line {number}) has {len(fields)} fields; wanted {_STATS_FIELDS}")
    for label, text in zip(("frequency", "skew", "offset", "deviation"), fields[-4:], strict=True):
        _scaled(text, 9, f"sourcestats (line {number}): {label}")
    return ",".join(fields[:-7]), _seconds(fields[-5], f"sourcestats (line {number}): span")


def _upstream(line: str, number: int) -> Upstream:
    fields = line.split(",")
    if len(fields) < _NTPDATA_FIELDS[0]:
        raise _GarbledError(f'line {number} of chronyc is of no report: "{line[:60]}"')
    ref_id = _matched(_REF_ID, fields[_NTPDATA_REF_ID], "ntpdata: reference id")
    stratum = _whole(fields[8], "ntpdata: stratum")
    extra = _commas(ref_id) if stratum <= 1 else 0
    if len(fields) - extra not in _NTPDATA_FIELDS:
        raise _GarbledError(
            f"ntpdata (line {number}) has {len(fields)} fields; wanted 33, 34 or 38: "
            "this chrony is newer than this clockgated, update it"
        )
    return Upstream(address=fields[0], stratum=stratum, ref_id=ref_id)


def _commas(ref_id: str) -> int:
    return bytes.fromhex(ref_id).count(b",")


def _matched(pattern: re.Pattern[str], text: str, label: str) -> str:
    if not pattern.fullmatch(text):
        raise _GarbledError(f'{label} is "{text[:40]}"; wanted {pattern.pattern}')
    return text


def _scaled(text: str, places: int, label: str) -> int:
    """A decimal as a whole number of its 10^-places, exactly: a float would cost 200 ns of a time of day.

    Digits beyond `places` round away from zero.
    """
    match = _DECIMAL.fullmatch(text)
    if match is None:
        raise _GarbledError(f'{label} is "{text[:40]}"; wanted a decimal')
    sign, whole, fraction = match[1], match[2], match[3] or ""
    value = int(whole + fraction[:places].ljust(places, "0")) + (1 if fraction[places:].strip("0") else 0)
    return -value if sign == "-" else value


def _unsigned(text: str, places: int, label: str) -> int:
    value = _scaled(text, places, label)
    if value < 0:
        raise _GarbledError(f"{label} is {text[:40]}; wanted 0 or more")
    return value


def _seconds(text: str, label: str) -> int:
    return int(_matched(_SECONDS, text, label))


def _whole(text: str, label: str) -> int:
    return int(_matched(_WHOLE, text, label))
