"""The kernel's NTP variables by adjtimex(2), read and never set."""

import ctypes
import os


class Timex(ctypes.Structure):
    """struct timex of a 64-bit Linux; ctypes pads as the C compiler does."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time_sec", ctypes.c_long),
        ("time_usec", ctypes.c_long),
        ("tick", ctypes.c_long),
        ("ppsfreq", ctypes.c_long),
        ("jitter", ctypes.c_long),
        ("shift", ctypes.c_int),
        ("stabil", ctypes.c_long),
        ("jitcnt", ctypes.c_long),
        ("calcnt", ctypes.c_long),
        ("errcnt", ctypes.c_long),
        ("stbcnt", ctypes.c_long),
        ("tai", ctypes.c_int),
        ("reserved", ctypes.c_int * 11),
    ]


def read_timex() -> tuple[int, Timex]:
    """The clock's state (TIME_OK and so on) and variables; needs no privilege. OSError when a sandbox forbids it."""
    timex = Timex()
    time_state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if time_state < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"adjtimex: {os.strerror(number)}")
    return time_state, timex
