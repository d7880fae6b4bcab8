import subprocess
import sys

import pytest
from clockgate.wire import message_class, own_files, standard_files, stubs
from support.daemon import environment

BESIDE_THE_PACKAGES = """
import {first}
import {second}
from clockgate.wire import stubs
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
theirs = health_pb2.HealthCheckRequest(service="a").SerializeToString()
assert stubs.HealthCheckRequest.FromString(theirs).service == "a"
request = stubs.reflection_request("grpc.reflection.v1alpha.ServerReflection")(list_services="*")
assert reflection_pb2.ServerReflectionRequest.FromString(request.SerializeToString()).list_services == "*"
assert stubs.HealthCheckResponse(status=1).SerializeToString() == health_pb2.HealthCheckResponse(
    status=health_pb2.HealthCheckResponse.SERVING).SerializeToString()
"""


@pytest.mark.parametrize("ours_first", [True, False])
def test_stubs_live_beside_the_packages_of_the_same_names(ours_first: bool) -> None:
    names = ["clockgate.wire.stubs", "grpc_health.v1.health_pb2_grpc"]
    first, second = names if ours_first else reversed(names)
    code = BESIDE_THE_PACKAGES.format(first=first, second=second)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment(), capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


def test_reflection_versions_differ_in_their_package_alone() -> None:
    v1, v1alpha = stubs.REFLECTION_SERVICES
    request = stubs.reflection_request(v1)(host="h", file_by_filename="f")
    assert stubs.reflection_request(v1alpha).FromString(request.SerializeToString()).file_by_filename == "f"
    assert stubs.reflection_response(v1) is not stubs.reflection_response(v1alpha)


def test_status_numbers_are_those_of_the_descriptor() -> None:
    values = stubs.HealthCheckResponse.DESCRIPTOR.enum_types_by_name["ServingStatus"].values_by_name
    assert {name: value.number for name, value in values.items()} == {
        "UNKNOWN": stubs.STATUS_UNKNOWN,
        "SERVING": stubs.STATUS_SERVING,
        "NOT_SERVING": stubs.STATUS_NOT_SERVING,
        "SERVICE_UNKNOWN": stubs.STATUS_SERVICE_UNKNOWN,
    }


def test_unknown_message_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        message_class("grpc.health.v1.Nothing")


def test_committed_descriptors_carry_comments() -> None:
    clock = next(file for file in own_files().file if file.name == "clockgate/v1/clock.proto")
    comments = [location.leading_comments for location in clock.source_code_info.location]
    assert any("Half-width, ns" in comment for comment in comments)
    assert {file.package for file in standard_files().file} == {
        "grpc.health.v1", "grpc.reflection.v1", "grpc.reflection.v1alpha"
    }  # fmt: skip
