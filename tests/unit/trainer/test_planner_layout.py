"""Where a model goes, and the words of --device_map and --max_memory."""

from contextlib import suppress

import pytest
from clockgate_trainer.errors import UsageError
from clockgate_trainer.flags.memory_flags import read_device_map, read_max_memory
from clockgate_trainer.planner.layout import Costs, Parallelism, choose, spread
from clockgate_trainer.planner.memory import GIB
from clockgate_trainer.planner.modules import Modules, device_map
from hypothesis import given
from hypothesis import strategies as st

COST = Costs(layer=1.0 * GIB, first=0.5 * GIB, last=1.5 * GIB)
ROOM = st.floats(min_value=0.5, max_value=64).map(lambda gib: gib * GIB)


def test_a_copy_that_fits_is_never_split() -> None:
    layout = choose(COST, 8, [20 * GIB, 20 * GIB], ranks=1, whole=10 * GIB)
    assert layout.parallelism is Parallelism.DATA
    assert layout.layers_on == (8, 8)


def test_layers_are_split_only_by_a_rank_that_is_alone() -> None:
    budgets = [6 * GIB, 6 * GIB]
    assert choose(COST, 8, budgets, ranks=1, whole=10 * GIB).parallelism is Parallelism.LAYERS
    assert choose(COST, 8, budgets, ranks=2, whole=10 * GIB).parallelism is Parallelism.NONE


def test_the_end_with_head_and_loss_gets_fewer_layers() -> None:
    assert spread(Costs(1.0 * GIB, 0.0, 2.0 * GIB), 8, [8 * GIB, 8 * GIB]) == (5, 3)


def test_a_smaller_budget_gets_fewer_layers() -> None:
    found = spread(COST, 12, [16 * GIB, 6 * GIB])
    assert found is not None
    assert found[0] > found[1]


@given(layers=st.integers(1, 80), budgets=st.lists(ROOM, min_size=1, max_size=8))
def test_a_split_holds_every_layer_once_and_keeps_to_the_budgets(layers: int, budgets: list[float]) -> None:
    found = spread(COST, layers, budgets)
    if found is None:
        return
    assert sum(found) == layers
    assert min(found) >= 1
    last = len(found) - 1
    for place, (count, budget) in enumerate(zip(found, budgets, strict=True)):
        ends = (COST.first if place == 0 else 0) + (COST.last if place == last else 0)
        assert count * COST.layer + ends <= budget


@given(layers=st.integers(1, 40), budgets=st.lists(ROOM, min_size=1, max_size=4), more=st.floats(1.0, 4.0))
def test_more_room_never_makes_a_split_impossible(layers: int, budgets: list[float], more: float) -> None:
    if spread(COST, layers, budgets) is not None:
        assert spread(COST, layers, [budget * more for budget in budgets]) is not None


MODULES = Modules(("m.layers.0", "m.layers.1", "m.layers.2"), "m.embed", ("m.norm", "head"), None)


def test_device_map_keeps_layers_in_order_and_the_head_at_the_end() -> None:
    found = device_map(MODULES, (1, 2))
    assert found == {"m.embed": 0, "m.layers.0": 0, "m.layers.1": 1, "m.layers.2": 1, "m.norm": 1, "head": 1}


def test_a_head_that_shares_the_embedding_is_where_the_embedding_is() -> None:
    tied = Modules(MODULES.layers, MODULES.embedding, MODULES.others, tied_head="head")
    assert device_map(tied, (1, 2))["head"] == 0


def test_max_memory_of_the_published_command_line_is_read() -> None:
    text = "{0: '46000MB', 1: '46000MB', 2: '46000MB', 3: '46000MB'}"
    assert read_max_memory(text) == dict.fromkeys(range(4), 46_000_000_000)


@pytest.mark.parametrize(("size", "wanted"), [("'1GiB'", 2**30), ("'1.5 GB'", 1_500_000_000), ("1024", 1024)])
def test_sizes_have_units(size: str, wanted: int) -> None:
    assert read_max_memory(f"{{0: {size}}}") == {0: wanted}


@pytest.mark.parametrize(
    "text",
    ["", "46GB", "{0: 'much'}", "{0: -1}", "{0: True}", "{'a': '1GB'}", "{-1: '1GB'}", "{'cpu': '1GB'}", "[1]", "{}"],
)
def test_max_memory_that_makes_no_sense_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match="--max_memory"):
        read_max_memory(text)


def test_device_map_is_auto_or_one_device_per_module() -> None:
    assert read_device_map("auto") is None
    assert read_device_map("{'': 0}") == {"": 0}
    assert read_device_map("{'model': 'cpu'}") == {"model": "cpu"}


def test_a_list_of_devices_for_one_module_is_refused_with_the_way_to_do_it() -> None:
    with pytest.raises(UsageError, match=r"one device; wanted auto.*launch --nproc-per-node"):
        read_device_map("{'': [0,1,2,3]}")


@given(st.text())
def test_no_text_breaks_the_readers(text: str) -> None:
    for read in (read_max_memory, read_device_map):
        with suppress(UsageError):
            read(text)
