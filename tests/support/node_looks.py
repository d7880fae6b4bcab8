"""A look at a node in which everything is known, and the judgement of it."""

from clockgated.node.facts import (
    Disk,
    Extras,
    FabricLook,
    Gid,
    Gpu,
    GpuLook,
    GpuPath,
    HostLook,
    LinkExtra,
    NetLink,
    NodeLook,
    NvLink,
    PeerPath,
    PlatformLook,
    Pressure,
    RdmaPortLook,
    Temperature,
)
from clockgated.node.model import Finding, FindingCode, HealthState, NodeHealth, Severity
from clockgated.tuning.facts import JobProcess, PcieHop
from support.readings import GOOD

HOP = PcieHop("0000:18:00.0", 16.0, 8, 32.0, 16)
LOOK = NodeLook(
    host=HostLook(Pressure(10, 20, 30), 100, 50, 1.0, 8, 2, 3, 4, "tsc", 0, (Temperature("zone0", 40.0, 100.0),)),
    disks=(Disk("/state", 100, 60, 10, 5, is_read_only=False),),
    fabric=FabricLook(
        (
            NetLink(
                "eth0", "mlx5", True, True, 9000, 100_000, "full", 4,
                {"rx_bytes": 1, "tx_bytes": 2, "rx_errors": 3, "tx_errors": 4, "rx_dropped": 5, "tx_dropped": 6},
                1, (HOP,),
            ),
        ),
        (
            RdmaPortLook(
                "mlx5_0", 1, "ACTIVE", "LinkUp", "InfiniBand", 400.0, "28.1", 26, 1,
                (Gid(3, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "eth0"),),
                {"port_rcv_data": 10, "port_xmit_data": 20, "symbol_error": 7}, 1, (HOP,),
            ),
        ),
    ),
    platform=PlatformLook("registered", ("0000:17:00.0",), (JobProcess(7, "torchrun", 8 << 20),), True, ("x",)),
    gpus=GpuLook(
        "580.1",
        (
            Gpu(
                0, "GPU-a", "H200", "0000:18:00.0", 100, 40, 90, 61, 89, 700_000, 700_000, 5, 6, ("hw_thermal",),
                5, 16, 5, 16, (NvLink(0, True, "0000:19:00.0"), NvLink(1, False)), True, False, 1,
            ),
        ),
        (GpuPath(0, 1, 18, "node"),),
    ),
    extras=Extras({"eth0": LinkExtra(("fq",), ("RS",), 3, 4)}, (PeerPath("p", 10, 10, 250, 300, 20),)),
)  # fmt: skip
FINDING = Finding(
    FindingCode.GPU_THROTTLED, Severity.WARNING, "gpu 0", "hw_thermal", "full clocks", "cool it", GOOD.as_of_boot_ns
)
HEALTH = NodeHealth(HealthState.DEGRADED, (FINDING,), GOOD.as_of_boot_ns, 3, LOOK, GOOD.as_of_boot_ns)
