"""NVIDIA's library: a stand-in with its names and signatures, compiled here, and one of Python where no compiler is."""

import ctypes
from pathlib import Path
from typing import Any

import pytest
from clockgated.node.facts import Gpu, NvLink
from clockgated.node.look_gpus import GpuWatch, joint_nvlinks
from support.nvml import make_library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def mode(library: Path) -> Path:
    """A file: the number in it is the error that the library gives out."""
    file = library.with_name("mode")
    file.write_text("0")
    return file


def test_every_figure_of_a_gpu_is_read(library: Path, mode: Path) -> None:
    seen = GpuWatch(str(library)).look()
    assert (seen.driver_version, seen.trouble, len(seen.gpus)) == ("580.1", None, 2)
    assert seen.gpus[1] == Gpu(
        1,
        uuid="GPU-1",
        name="NVIDIA Test",
        pci_address="0000:19:00.0",
        memory_total_bytes=100 << 30,
        memory_used_bytes=5 << 30,
        utilization_percent=42,
        temperature_celsius=61,
        slowdown_celsius=89,
        power_milliwatts=123_456,
        power_limit_milliwatts=None,
        ecc_corrected=7,
        ecc_uncorrected=0,
        throttle_reasons=("sw_power_cap", "hw_thermal"),
        pcie_generation=1,
        pcie_width=16,
        pcie_max_generation=5,
        pcie_max_width=16,
        nvlinks=(NvLink(0, True, "0000:18:00.0"), NvLink(1, False)),
        has_pending_rows=True,
        has_failed_rows=False,
        numa_node=None,
    )
    assert [(one.gpu, one.other_gpu, one.nvlinks, one.pcie_level) for one in seen.paths] == [(0, 1, 1, "host bridge")]


def test_an_error_of_the_driver_is_told_with_its_gpu_and_once(library: Path, mode: Path) -> None:
    watch = GpuWatch(str(library))
    for _ in range(2):
        (error,) = watch.look().errors
        assert (error.kind, error.subject, error.code, error.count) == ("xid", "0000:19:00", 79, 1)


@pytest.mark.parametrize(("code", "words"), [(15, "fallen off the bus"), (16, "needs a reset")])
def test_a_lost_gpu_is_told_beside_the_others(library: Path, mode: Path, code: int, words: str) -> None:
    mode.write_text(str(code))
    good, lost = GpuWatch(str(library)).look().gpus
    assert good.trouble is None
    assert words in (lost.trouble or "")


def test_a_library_of_another_driver_is_trouble_until_it_fits(library: Path, mode: Path) -> None:
    watch = GpuWatch(str(library))
    mode.write_text("18")
    assert "different versions" in (watch.look().trouble or "")
    mode.write_text("0")
    assert len(watch.look().gpus) == 2
    assert watch.rest().gpus == ()
    assert len(watch.look().gpus) == 2


def test_without_the_library_there_are_no_gpus_and_no_trouble() -> None:
    seen = GpuWatch("libnvidia-ml-that-is-not.so.1").look()
    assert (seen.gpus, seen.trouble, seen.driver_version) == ((), None, None)


def test_nvlinks_to_the_same_switches_join_two_gpus() -> None:
    one = Gpu(0, pci_address="a", nvlinks=(NvLink(0, True, "s1"), NvLink(1, True, "s2"), NvLink(2, True, "s2")))
    other = Gpu(1, pci_address="b", nvlinks=(NvLink(0, True, "s2"), NvLink(1, True, "s1"), NvLink(2, False, "s2")))
    assert joint_nvlinks(one, other) == joint_nvlinks(other, one) == 2
    assert joint_nvlinks(one, Gpu(2, pci_address="c")) == 0


class OldLibrary:
    """A library that has few of the functions, as old ones do; `nvmlInit_v2` and what is named here."""

    def __init__(self, name: str) -> None:
        self.name = name

    def nvmlInit_v2(self) -> int:  # noqa: N802 - named by NVIDIA
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 1
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:  # noqa: N802
        handle._obj.value = 100 + index.value
        return 0

    def nvmlDeviceGetTemperature(self, device: Any, sensor: Any, value: Any) -> int:  # noqa: N802
        assert (device.value, sensor.value) == (100, 0)
        value._obj.value = 55
        return 0


def test_what_an_old_library_lacks_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", OldLibrary)
    (gpu,) = GpuWatch().look().gpus
    assert gpu == Gpu(0, temperature_celsius=55)
