"""Kubernetes manifests and the trainer's unit: valid, and of one mind with the contract."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from clockgate_trainer.errors import ExitCode
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.launch import split
from clockgated import config
from clockgated.ctl import address
from support.tools import ROOT, missing, require_tool

try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

pytestmark = pytest.mark.integration

KUBERNETES = ROOT / "examples/kubernetes"
UNIT = ROOT / "examples/systemd/clockgate-train@.service"
# The oldest that a Job's podFailurePolicy is stable in, and the newest of today.
VERSIONS = ("1.31", "1.34")

GOES_ON = {ExitCode.STOPPED, ExitCode.PEER_LOST}
STAYS_DOWN = {ExitCode.USAGE, ExitCode.STOPPED_UNSAVED, ExitCode.DESYNC, ExitCode.CONFIG}


def documents(name: str) -> dict[str, Any]:
    """The objects of a manifest, by kind."""
    text = (KUBERNETES / name).read_text(encoding="utf-8")
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


DAEMON, TRAIN = documents("clockgate-daemon.yaml"), documents("clockgate-train.yaml")


def pod(owner: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Specification of the pod, and of its one container."""
    spec = owner["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return spec, container


def host_path(spec: dict[str, Any], container: dict[str, Any], where: str) -> tuple[str, bool]:
    """What of the host is mounted at `where`, and whether for reading alone."""
    mount = next(one for one in container["volumeMounts"] if one["mountPath"] == where)
    volume = next(one for one in spec["volumes"] if one["name"] == mount["name"])
    return volume["hostPath"]["path"], mount.get("readOnly", False)


@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_are_what_kubernetes_takes(version: str) -> None:
    if kubernetes_validate is None:
        missing("the package kubernetes-validate is not in this environment")
    for path in sorted(KUBERNETES.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            kubernetes_validate.validate(document, version, strict=True)


def test_every_volume_is_mounted_and_every_mount_has_a_volume() -> None:
    for owner in (DAEMON["DaemonSet"], TRAIN["Job"]):
        spec, container = pod(owner)
        volumes = [one["name"] for one in spec["volumes"]]
        assert sorted(volumes) == sorted(one["name"] for one in container["volumeMounts"])


def test_daemon_has_the_folders_of_the_contract_and_the_right_to_set_the_clock() -> None:
    spec, container = pod(DAEMON["DaemonSet"])
    usual = config.Config()
    assert host_path(spec, container, usual.folders.run) == ("/run/clockgate", False)
    assert host_path(spec, container, usual.folders.state) == ("/var/lib/clockgate", False)
    assert str(usual.api.socket.parent) == usual.folders.run
    assert spec["hostNetwork"]
    assert spec["hostPID"]
    assert {"SYS_TIME", "NET_ADMIN", "NET_RAW"} <= set(container["securityContext"]["capabilities"]["add"])
    assert container["command"] == ["clockgated", "--config", str(config.DEFAULT_FILE)]


def test_configuration_in_the_manifest_is_taken_by_the_daemon() -> None:
    text = DAEMON["ConfigMap"]["data"]["clockgated.toml"]
    settings = config.parse(text.encode(), "clockgated.toml")
    assert settings.clock.mode == "ntp"


def test_training_pods_reach_the_clock_and_not_the_admin_socket() -> None:
    spec, container = pod(TRAIN["Job"])
    assert host_path(spec, container, "/run/clockgate") == ("/run/clockgate", True)
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert variables["CLOCKGATE_ADDRESS"] == str(address.DEFAULT_SOCKET)
    # The admin folder is for root alone.
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["runAsUser"] != 0


def test_exit_codes_decide_what_is_started_again() -> None:
    rules = TRAIN["Job"]["spec"]["podFailurePolicy"]["rules"]
    by_action = {one["action"]: set(one["onExitCodes"]["values"]) for one in rules if "onExitCodes" in one}
    assert by_action == {"Count": GOES_ON, "FailJob": STAYS_DOWN}
    assert GOES_ON | STAYS_DOWN | {ExitCode.DONE} == set(ExitCode)
    # Only pods that are never started again in place let the policy see their code.
    assert pod(TRAIN["Job"])[0]["restartPolicy"] == "Never"


def test_ranks_meet_at_a_name_that_the_service_gives_before_they_are_ready() -> None:
    job, service = TRAIN["Job"], TRAIN["Service"]
    spec, container = pod(job)
    launch, train = split([*container["command"][2:], *container["args"]])
    joined = " ".join(launch)
    name, port = job["metadata"]["name"], service["spec"]["ports"][0]["port"]
    assert f"--rdzv_endpoint={name}-0.{spec['subdomain']}:{port}" in joined
    assert service["metadata"]["name"] == spec["subdomain"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    assert f"--nnodes={job['spec']['completions']}" in joined
    assert job["spec"]["parallelism"] == job["spec"]["completions"]
    ranks = container["resources"]["limits"]["nvidia.com/gpu"]
    assert f"--nproc_per_node={ranks}" in joined
    settings = parse(train)
    mounted = {one["mountPath"]: one.get("readOnly", False) for one in container["volumeMounts"]}
    assert mounted[str(Path(settings.output_dir).parent)] is False


def test_unit_of_the_trainer_starts_again_where_a_checkpoint_stands() -> None:
    text = UNIT.read_text(encoding="utf-8")
    values = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    stays_down = {int(code) for code in values["RestartPreventExitStatus"].split()}
    assert stays_down >= STAYS_DOWN
    assert not GOES_ON & stays_down
    assert "clockgate-time-sync.target" in values["After"]
    assert "Requires" not in values


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "clockgate-train@one.service"
    shutil.copy(UNIT, unit)
    command = [str(require_tool("systemd-analyze")), "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    about_it = [line for line in done.stderr.splitlines() if "clockgate-train" in line]
    assert about_it == []
    assert done.returncode == 0, done.stderr
