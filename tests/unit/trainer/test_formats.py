from clockgate_trainer.data.formats import COLUMNS, DEFAULT_FORMAT, format_with, pair_of


def test_alpaca_row_without_input_uses_the_short_prompt() -> None:
    pair = pair_of("alpaca", {"instruction": "Name a bird.", "output": "Wren."}, 3)
    assert pair.prompt == (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
        "### Instruction:\nName a bird.\n\n### Response: "
    )
    assert (pair.answer, pair.line) == ("Wren.", 3)


def test_alpaca_row_with_input_shows_it() -> None:
    pair = pair_of("alpaca-clean", {"instruction": "Add.", "input": "1 {and} 2", "output": "3"}, 1)
    assert "### Input:\n1 {and} 2\n\n### Response: " in pair.prompt
    assert "paired with an input" in pair.prompt


def test_braces_in_a_row_are_plain_text() -> None:
    assert "{instruction}" in pair_of("alpaca", {"instruction": "{instruction}", "output": ""}, 1).prompt


def test_input_output_row_is_taken_as_it_is() -> None:
    pair = pair_of("input-output", {"input": " a ", "output": " b "}, 1)
    assert (pair.prompt, pair.answer) == (" a ", " b ")


def test_format_is_suggested_from_columns() -> None:
    assert format_with(frozenset({"instruction", "output", "id"})) == "alpaca"
    assert format_with(frozenset({"input", "output"})) == "input-output"
    assert format_with(frozenset({"text"})) is None


def test_default_format_exists() -> None:
    assert DEFAULT_FORMAT in COLUMNS
