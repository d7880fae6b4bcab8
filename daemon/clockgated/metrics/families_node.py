"""The metrics of the machine around the clock. Pure."""

from clockgated.metrics.family import Family, Kind

_GAUGE, _COUNTER = Kind.GAUGE, Kind.COUNTER
_GPU, _LINK, _PORT = ("gpu", "uuid"), ("link",), ("device", "port")

HEALTH = Family(
    "clockgate_node_health", _GAUGE, "Whether the node is in this state of health (1) or not (0).", ("state",)
)
FINDING = Family(
    "clockgate_node_finding",
    _GAUGE,
    "1 for each finding that stands, by its code, severity and subject.",
    ("code", "severity", "subject"),
)
FINDINGS = Family("clockgate_node_findings", _GAUGE, "Findings that stand, by severity.", ("severity",))
LOOK_AGE = Family("clockgate_node_look_age_seconds", _GAUGE, "Age of the newest look at the node.")
PRESSURE = Family(
    "clockgate_node_pressure_ratio", _GAUGE, "Share of the last minute in which tasks waited.", ("resource", "waiting")
)
MEMORY_AVAILABLE = Family(
    "clockgate_node_memory_available_bytes", _GAUGE, "Memory that new work could have without swapping."
)
OOM_KILLS = Family("clockgate_node_oom_kills_total", _COUNTER, "Processes killed for want of memory since boot.")
MEMORY_ERRORS = Family("clockgate_node_memory_errors_total", _COUNTER, "Errors of main memory (ECC).", ("kind",))
DISK_FREE = Family("clockgate_node_disk_free_bytes", _GAUGE, "Room on the file system of a watched folder.", ("path",))

GPU_INFO = Family(
    "clockgate_gpu_info", _GAUGE, "Model and place of a GPU as labels; the value is 1.", (*_GPU, "name", "pci_address")
)
GPU_UTILIZATION = Family("clockgate_gpu_utilization_ratio", _GAUGE, "Share of time in which a GPU was busy.", _GPU)
GPU_MEMORY_USED = Family("clockgate_gpu_memory_used_bytes", _GAUGE, "Memory of a GPU in use.", _GPU)
GPU_MEMORY = Family("clockgate_gpu_memory_bytes", _GAUGE, "Memory of a GPU.", _GPU)
GPU_TEMPERATURE = Family("clockgate_gpu_temperature_celsius", _GAUGE, "Temperature of a GPU.", _GPU)
GPU_POWER = Family("clockgate_gpu_power_watts", _GAUGE, "Power that a GPU draws.", _GPU)
GPU_ECC = Family(
    "clockgate_gpu_memory_errors_total",
    _COUNTER,
    "Errors of a GPU's memory since its driver was loaded.",
    (*_GPU, "kind"),
)
GPU_THROTTLED = Family(
    "clockgate_gpu_throttled", _GAUGE, "1 for each reason why a GPU runs slower than it could.", (*_GPU, "reason")
)
NVLINKS_UP = Family("clockgate_gpu_nvlinks_up", _GAUGE, "NVLinks of a GPU that are up.", _GPU)

RDMA_ACTIVE = Family("clockgate_rdma_port_active", _GAUGE, "Whether an RDMA port is ACTIVE (1) or not (0).", _PORT)
RDMA_RATE = Family("clockgate_rdma_port_rate_bytes_per_second", _GAUGE, "Rate of an RDMA port, without coding.", _PORT)
RDMA_RECEIVED = Family("clockgate_rdma_port_received_bytes_total", _COUNTER, "Data received by an RDMA port.", _PORT)
RDMA_SENT = Family("clockgate_rdma_port_sent_bytes_total", _COUNTER, "Data sent by an RDMA port.", _PORT)
RDMA_ERRORS = Family(
    "clockgate_rdma_port_errors_total", _COUNTER, "Errors of an RDMA port by the kernel's names.", (*_PORT, "counter")
)

LINK_CARRIER = Family("clockgate_link_carrier", _GAUGE, "Whether an interface has a link (1) or not (0).", _LINK)
LINK_SPEED = Family("clockgate_link_speed_bytes_per_second", _GAUGE, "Speed of an interface.", _LINK)
LINK_RECEIVED = Family("clockgate_link_received_bytes_total", _COUNTER, "Data received by an interface.", _LINK)
LINK_SENT = Family("clockgate_link_sent_bytes_total", _COUNTER, "Data sent by an interface.", _LINK)
LINK_ERRORS = Family(
    "clockgate_link_errors_total", _COUNTER, "Packets damaged on an interface, by direction.", (*_LINK, "direction")
)
LINK_DROPS = Family(
    "clockgate_link_drops_total", _COUNTER, "Packets dropped by an interface, by direction.", (*_LINK, "direction")
)
LINK_LOSSES = Family("clockgate_link_carrier_losses_total", _COUNTER, "How often an interface lost its link.", _LINK)
PEER_RTT = Family(
    "clockgate_peer_round_trip_seconds", _GAUGE, "Median round trip to a peer when last asked.", ("peer",)
)
PEER_JITTER = Family(
    "clockgate_peer_jitter_seconds", _GAUGE, "Mean difference of successive round trips to a peer.", ("peer",)
)

ALL = (
    HEALTH, FINDING, FINDINGS, LOOK_AGE, PRESSURE, MEMORY_AVAILABLE, OOM_KILLS, MEMORY_ERRORS, DISK_FREE, GPU_INFO,
    GPU_UTILIZATION, GPU_MEMORY_USED, GPU_MEMORY, GPU_TEMPERATURE, GPU_POWER, GPU_ECC, GPU_THROTTLED, NVLINKS_UP,
    RDMA_ACTIVE, RDMA_RATE, RDMA_RECEIVED, RDMA_SENT, RDMA_ERRORS, LINK_CARRIER, LINK_SPEED, LINK_RECEIVED, LINK_SENT,
    LINK_ERRORS, LINK_DROPS, LINK_LOSSES, PEER_RTT, PEER_JITTER,
)  # fmt: skip
