"""Ratings of a judge: the arithmetic of the published results on a small twin of the published files, and bad files."""

import json
from pathlib import Path

import pytest
from clockgate_trainer.errors import ConfigError
from clockgate_trainer.evaluation.ratings import Match, results_of
from clockgate_trainer.evaluation.ratings_command import main
from clockgate_trainer.evaluation.ratings_file import read_match
from hypothesis import given
from hypothesis import strategies as st


def write(folder: Path, name: str, scores: list[object]) -> Path:
    path = folder / name
    path.write_text(
        "".join(json.dumps({"question_id": n, "text": "why", "score": score}) + "\n" for n, score in enumerate(scores)),
        encoding="utf-8",
    )
    return path


@pytest.fixture
def twin(tmp_path: Path) -> list[Path]:
    """Points of two systems against base, in both orders; the second number belongs to the name that comes first."""
    return [
        write(tmp_path, "big-topp0.9-vs-base-3.5-gpt4-reviewer.jsonl", [[10, 9], [10.0, 9.5], [-1, -1]]),
        write(tmp_path, "base-3.5-vs-big-topp0.9-gpt4-reviewer.jsonl", [[8, 8], [10, 8], [9, 9]]),
        write(tmp_path, "small-vs-base-3.5-gpt4-reviewer.jsonl", [[8, 4]]),
        write(tmp_path, "base-3.5-vs-small-gpt4-reviewer.jsonl", [[6, 8]]),
    ]


def test_both_orders_count_the_same_and_points_are_in_the_reverse_order_of_the_names(twin: list[Path]) -> None:
    big, small = results_of([read_match(path) for path in twin])
    assert (big.system, big.baseline, big.by_points) == ("big-topp0.9", "base-3.5", True)
    assert [order.value for order in big.orders] == [pytest.approx(18.5 / 20), pytest.approx(27 / 25)]
    assert big.value == pytest.approx((18.5 / 20 + 27 / 25) / 2)
    assert [order.questions for order in big.orders] == [2, 3]
    assert big.unread == 1
    assert small.value == pytest.approx((4 / 8 + 6 / 8) / 2)
    # The first number is that of the answer that the judge saw first.
    assert [order.shown_first for order in small.orders] == ["base-3.5", "small"]


def test_the_order_of_the_names_can_be_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, "a-vs-b-gpt4-reviewer.jsonl", [[9, 6]])
    assert results_of([read_match(path)])[0].value == pytest.approx(6 / 9)
    (named,) = results_of([read_match(path, named_order=True)])
    assert named.value == pytest.approx(9 / 6)
    assert named.orders[0].shown_first == "a"


def test_choices_follow_the_names_and_a_tie_is_half_a_win(tmp_path: Path) -> None:
    one = write(tmp_path, "a-x-vs-gpt-4-y-gpt-4-reviewer-threeclass.jsonl", [1, 1, 2, 3, -1])
    other = write(tmp_path, "gpt-4-y-vs-a-x-gpt-4-reviewer-threeclass.jsonl", [1, 3])
    (result,) = results_of([read_match(one), read_match(other)])
    assert (result.system, result.baseline, result.by_points) == ("a-x", "gpt-4-y", False)
    assert result.value == pytest.approx((2.5 / 4 + 0.5 / 2) / 2)
    assert [(order.wins, order.losses, order.ties) for order in result.orders] == [(2, 1, 1), (0, 1, 1)]
    assert result.unread == 1


def test_the_baseline_can_be_named(twin: list[Path]) -> None:
    (big, _) = results_of([read_match(path) for path in twin], "big-topp0.9")
    assert (big.system, big.baseline) == ("base-3.5", "big-topp0.9")
    with pytest.raises(ConfigError, match=r"--baseline other is in none .*big-topp0\.9"):
        results_of([read_match(twin[0])], "other")


@given(st.lists(st.tuples(st.floats(0.5, 10), st.floats(0.5, 10)), min_size=1, max_size=20))
def test_a_judge_that_only_likes_the_first_place_finds_two_equal_systems_equal(
    points: list[tuple[float, float]],
) -> None:
    choices = tuple(1 if first > second else 2 if second > first else 3 for first, second in points)
    matches = [Match("a", "b", "b", choices=choices), Match("b", "a", "b", choices=choices)]
    assert results_of(matches)[0].value == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("name", "line", "told"),
    [
        ("ratings.jsonl", '{"score": 1}', "FIRST-vs-SECOND-REVIEWER-reviewer.jsonl"),
        ("a-vs-a-gpt4-reviewer.jsonl", '{"score": 1}', "judged against itself"),
        ("a-vs-b-gpt4-reviewer.jsonl", '{"points": 1}', ":1: score is missing: the line has points"),
        ("a-vs-b-gpt4-reviewer.jsonl", '{"score": 4}', ":1: score is 4: wanted two numbers from 0, or 1, 2 or 3"),
        ("a-vs-b-gpt4-reviewer.jsonl", '{"score": [1, null]}', ":1: score is [1, None]"),
        ("a-vs-b-gpt4-reviewer.jsonl", '{"score": [1, 2, 3]}', ":1: score is"),
        ("a-vs-b-gpt4-reviewer.jsonl", '{"score": true}', ":1: score is True"),
        ("a-vs-b-gpt4-reviewer.jsonl", '{"score": [1, 2]}\n{"score": 2}', "1 scores are points and 1 are choices"),
        ("a-vs-b-gpt4-reviewer.jsonl", '{"score": -1}', "no line holds a score"),
        ("a-vs-b-gpt4-reviewer.jsonl", '{"score": [1, 2]', ":1: not JSON"),
        ("a-vs-b-gpt4-reviewer.jsonl", "", "the file is empty"),
        ("a-vs-b-gpt4-reviewer.jsonl", '{"question_id": 7, "score": 1}\n' * 2, ":2: question 7 is judged in line 1"),
        ("a-vs-b-gpt4-reviewer.jsonl", '{"score": [1, 0]}\n{"score": [0, 0]}', "no share of nothing"),
    ],
)
def test_a_bad_file_is_told_with_its_line_and_exits_78(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, line: str, told: str
) -> None:
    (tmp_path / name).write_text(line, encoding="utf-8")
    flags = ["--named-order"] if "nothing" in told else []
    assert main([str(tmp_path / name), *flags]) == 78
    assert told in capsys.readouterr().err


def test_one_order_twice_is_refused(twin: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "again"
    other.mkdir()
    again = write(other, twin[0].name, [[1, 1]])
    with pytest.raises(ConfigError, match="one for each order"):
        results_of([read_match(twin[0]), read_match(again)])


def test_the_command_prints_one_line_for_each_system_and_json_for_scripts(
    twin: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(path) for path in twin]) == 0
    shown = capsys.readouterr().out
    assert "big-topp0.9: 100.2% of the points of base-3.5" in shown
    assert "small: 62.5% of the points of base-3.5" in shown
    assert "reviews without a score, left out: 1" in shown
    assert main(["--json", str(twin[2])]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert one["value"] == pytest.approx(0.5)
    assert len(one["orders"]) == 1
