"""What came with a request, repeated to the asker and to the log."""

import json

_MOST_CHARACTERS = 64


def shown(text: str) -> str:
    """`text` in quotes, cut short, as JSON has it: nothing in it moves a terminal's cursor or begins a line."""
    return json.dumps(text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "...")
