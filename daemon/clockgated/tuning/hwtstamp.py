"""The time-stamping configuration of an interface, which every program on the node shares. Reads and restores it.

Layouts: struct ifreq and struct hwtstamp_config of linux/net_tstamp.h.
"""

import ctypes
import fcntl
import socket
import struct

from clockgated.tuning.facts import StampConfig

_SIOCSHWTSTAMP = 0x89B0
_SIOCGHWTSTAMP = 0x89B1
_CONFIG = struct.Struct("=iii")


def read_stamp_config(device: str) -> StampConfig | None:
    """How `device` stamps now; None when its driver does not tell, or there is no such device."""
    answer = _exchange(device, _SIOCGHWTSTAMP, (0, 0, 0))
    return None if isinstance(answer, OSError) else StampConfig(tx_type=answer[1], rx_filter=answer[2])


def write_stamp_config(device: str, config: StampConfig) -> OSError | None:
    """Configure `device`; None when the driver took it. It may widen the filter: read back."""
    answer = _exchange(device, _SIOCSHWTSTAMP, (0, config.tx_type, config.rx_filter))
    return answer if isinstance(answer, OSError) else None


def _exchange(device: str, request: int, values: tuple[int, int, int]) -> tuple[int, int, int] | OSError:
    buffer = ctypes.create_string_buffer(_CONFIG.pack(*values), _CONFIG.size)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
            fcntl.ioctl(handle, request, struct.pack("16sP16x", device.encode()[:15], ctypes.addressof(buffer)))
    except OSError as error:
        return error
    flags, tx_type, rx_filter = _CONFIG.unpack(buffer.raw)
    return flags, tx_type, rx_filter
