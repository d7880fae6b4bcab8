import pytest
import torch
import torch.distributed as dist
from clockgate_trainer.errors import ConfigError, PeerLostError
from clockgate_trainer.train.distributed import Meeting, Place, SharedError, choose_device, peers_needed, read_place
from clockgate_trainer.train.start import together

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "n0", "MASTER_PORT": "1"}
ALONE = Place(0, 1, 0, 1)


def test_place_is_read_from_the_launcher() -> None:
    assert read_place({**TORCHRUN, "LOCAL_WORLD_SIZE": "2"}) == Place(3, 8, 1, 2)
    assert not read_place(TORCHRUN).leads


def test_rank_without_launcher_is_alone_and_leads() -> None:
    place = read_place({"RANK": "3"})
    assert place == ALONE
    assert place.alone
    assert place.leads


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"RANK": "x"}, "RANK is 'x'"),
        ({"RANK": "8"}, "RANK is 8: wanted less than WORLD_SIZE, 8"),
        ({"RANK": "-1"}, "RANK"),
    ],
)
def test_broken_environment_is_refused_by_name(change: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_place({**TORCHRUN, **change})


def test_half_an_environment_names_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="MASTER_ADDR, MASTER_PORT"):
        read_place({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"})


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "3"}, "srun has started 8 processes"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "mpirun has started 2"),
        ({"PMI_SIZE": "2"}, "mpiexec has started 2"),
        ({"MASTER_ADDR": "127.0.0.1", "ACCELERATE_MIXED_PRECISION": "no"}, "--multi_gpu"),
    ],
)
def test_processes_of_another_launcher_do_not_each_train_alone(environment: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_place(environment)
    assert read_place({**environment, **TORCHRUN}).world_size == 8


def test_one_process_of_another_launcher_is_alone() -> None:
    assert read_place({"SLURM_STEP_NUM_TASKS": "1", "MASTER_ADDR": "n0"}) == ALONE
    assert read_place({"ACCELERATE_MIXED_PRECISION": "bf16"}) == ALONE


def test_cpu_is_taken_when_asked_for() -> None:
    assert choose_device("cpu", ALONE) == torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_that_is_not_there_is_refused() -> None:
    assert choose_device("auto", ALONE) == torch.device("cpu")
    with pytest.raises(ConfigError, match="this machine has 0"):
        choose_device("cuda", ALONE)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[gloo/transport/tcp/pair.cc:537] Connection closed by peer [127.0.0.1]:1"),
        dist.DistBackendError("NCCL communicator was aborted"),
    ],
)
def test_failed_collective_means_a_lost_rank(error: RuntimeError) -> None:
    with pytest.raises(PeerLostError, match="a rank was lost"), peers_needed():
        raise error


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("shapes differ")])
def test_own_failure_is_not_blamed_on_others(error: RuntimeError) -> None:
    with pytest.raises(type(error), match=str(error)), peers_needed():
        raise error


def test_rank_that_is_alone_hears_itself() -> None:
    meeting = Meeting(ALONE, 1.0)
    assert meeting.gather("x") == ("x",)
    assert meeting.bring_to_first("x") == ["x"]


def test_work_of_one_that_fails_fails_for_all() -> None:
    def fail() -> None:
        raise ConfigError("the data is bad")

    with pytest.raises(SharedError, match=r"^the data is bad$"):
        together(Meeting(ALONE, 1.0), fail)
    assert together(Meeting(ALONE, 1.0), lambda: 3) == 3
