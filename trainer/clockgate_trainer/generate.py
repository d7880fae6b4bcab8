"""`clockgate-train generate`: what a checkpoint, an adapter or a model answers.

Prompts come from --prompt, from a data file, or from standard input. They are written as training writes them: the same
frame by --dataset_format, the same template, begin mark and limits.
"""

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

from transformers.utils import logging as transformers_logging

from clockgate_trainer.checkpoint.weights import Weights, find_weights, leading_path
from clockgate_trainer.data.formats import DEFAULT_FORMAT
from clockgate_trainer.data.local import check_file, file_rows
from clockgate_trainer.data.record import BadRowError, Fault, Record
from clockgate_trainer.data.source import guess_format
from clockgate_trainer.data.tokenizer import load_tokenizer, make_coder
from clockgate_trainer.data.tokens import Coder
from clockgate_trainer.errors import ConfigError, ExitCode, TrainerError, UsageError
from clockgate_trainer.export.reload import autocast_of, load_trained, tokenizer_folder
from clockgate_trainer.flags.generation import generation_notices
from clockgate_trainer.flags.parse import parse
from clockgate_trainer.flags.table import Settings
from clockgate_trainer.generation.answer import Answer
from clockgate_trainer.generation.decode import Decoder, prepare
from clockgate_trainer.generation.encode import encode_prompt, fit
from clockgate_trainer.generation.prompts import Prompt, prompt_of_row, prompt_of_text
from clockgate_trainer.tell import tell
from clockgate_trainer.train.distributed import Place, choose_device

_FAILED = 1
_INTERRUPTED = 130


@dataclass(frozen=True)
class _Asked:
    """A prompt with where it comes from: its line in the file, or its number."""

    prompt: Prompt
    line: int


@dataclass(frozen=True)
class _Ready:
    """Everything that answers."""

    decoder: Decoder
    tokenizer: Any
    coder: Coder


def main(argv: Sequence[str]) -> int:
    """Answer the prompts of the command line `argv`, which comes after the word generate; the exit code."""
    parser = _parser()
    path, words = leading_path(argv)
    options, rest = parser.parse_known_args(words)
    options.weights = path
    try:
        return _generate(options, rest)
    except TrainerError as err:
        tell(f"clockgate-train generate: {err}")
        return err.exit_code
    except KeyboardInterrupt:
        tell("clockgate-train generate: interrupted")
        return _INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="clockgate-train generate",
        usage="%(prog)s [PATH] [--best] [--prompt TEXT | --prompts FILE] [--json] [--flag value ...]",
        description="Answers prompts with PATH: a checkpoint, a run folder (its newest verified checkpoint), an "
        "adapter or a model; without it --model_name_or_path answers. Without prompts, standard input is read.",
        epilog="takes the model, data and generation flags of training as well, such as --max_new_tokens, --do_sample "
        "and --dataset_format. exit codes: 0 all answered, 1 a row of the file is no prompt, 2 usage, 78 weights",
        allow_abbrev=False,
    )
    parser.add_argument("--best", action="store_true", help="of a run folder take the checkpoint that best.json names")
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="a prompt; may be given several times")
    parser.add_argument("--prompts", type=Path, metavar="FILE", help="a data file; its answers may be missing")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N rows of the file only")
    parser.add_argument("--batch_size", type=int, default=8, metavar="N", help="prompts at a time (default: 8)")
    parser.add_argument("--json", action="store_true", help="one JSON object for each prompt, on a line of its own")
    return parser


def _generate(options: argparse.Namespace, rest: Sequence[str]) -> int:
    weights, settings = _what(options, rest)
    asked, faults = _prompts(options, settings)
    if weights is not None:
        for note in weights.notes:
            tell(f"clockgate-train: {note}")
    for note in generation_notices(settings):
        tell(f"clockgate-train: {note}")
    ready = _load(settings, weights)
    one_by_one = not options.json and settings.num_beams == 1
    batches = _batches(asked, 1 if one_by_one else options.batch_size)
    for number, batch in enumerate(batches):
        _answer(ready, batch, number, as_json=options.json, stream=one_by_one)
    for fault in faults:
        tell(f"clockgate-train: {fault}")
    return _FAILED if faults else ExitCode.DONE


def _what(options: argparse.Namespace, rest: Sequence[str]) -> tuple[Weights | None, Settings]:
    """The weights and the settings: what is given wins over what the weights remember of their base."""
    if options.batch_size < 1 or (options.limit is not None and options.limit < 1):
        raise UsageError("--batch_size and --limit want a number from 1")
    if options.prompt and options.prompts:
        raise UsageError("--prompt and --prompts are both given: wanted one of them")
    if options.best and options.weights is None:
        raise UsageError("--best wants a run folder")
    parse(rest)
    given = {word[2:].partition("=")[0] for word in rest if word.startswith("--")}
    if options.weights is None:
        if "model_name_or_path" not in given:
            raise UsageError("nothing answers: name a checkpoint, a run folder, an adapter or --model_name_or_path")
        return None, parse(rest)
    weights = find_weights(options.weights, best=options.best)
    return weights, parse([*weights.words, *rest])


def _prompts(options: argparse.Namespace, settings: Settings) -> tuple[Iterator[_Asked], list[str]]:
    """The prompts, and a list that holds what was wrong with rows once they have been read."""
    faults: list[str] = []
    if options.prompts is not None:
        # Told before weights load, which takes minutes.
        check_file(options.prompts)
        return islice(_of_file(options.prompts, settings, faults), options.limit), faults
    kind = settings.dataset_format or DEFAULT_FORMAT
    if options.prompt:
        return iter([_of_text(kind, text, number) for number, text in enumerate(options.prompt, start=1)]), faults
    return _of_terminal(kind) if sys.stdin.isatty() else _of_pipe(kind), faults


def _of_file(path: Path, settings: Settings, faults: list[str]) -> Iterator[_Asked]:
    kind = settings.dataset_format or guess_format(path) or DEFAULT_FORMAT
    for found in file_rows(path):
        if isinstance(found, Fault):
            faults.append(found.at(str(path)))
            continue
        asked = _of_row(kind, found, path, faults)
        if asked is not None:
            yield asked


def _of_row(kind: str, record: Record, path: Path, faults: list[str]) -> _Asked | None:
    try:
        return _Asked(prompt_of_row(kind, record.row, record.line), record.line)
    except BadRowError as bad:
        faults.append(bad.fault(record.line).at(str(path)))
        return None


def _of_pipe(kind: str) -> Iterator[_Asked]:
    """What is piped in is one prompt, whatever its lines."""
    try:
        text = sys.stdin.read().rstrip("\n")
    except UnicodeDecodeError as err:
        raise UsageError(f"standard input is not UTF-8 ({err}): pipe the prompt in as UTF-8") from err
    if not text.strip():
        raise UsageError("standard input is empty: give --prompt TEXT, --prompts FILE, or pipe a prompt in")
    return iter([_of_text(kind, text, 1)])


def _of_text(kind: str, text: str, number: int) -> _Asked:
    """What a person typed. Raises UsageError when it is no text that can be asked."""
    try:
        # A byte that is not UTF-8 comes in as half of a surrogate pair, which no tokenizer takes.
        text.encode()
        return _Asked(prompt_of_text(kind, text), number)
    except (UnicodeEncodeError, BadRowError) as err:
        raise UsageError(f"prompt {number} cannot be asked: {err}. Give it as UTF-8 text") from err


def _of_terminal(kind: str) -> Iterator[_Asked]:
    """A terminal is asked line after line."""
    for number in count(1):
        try:
            text = input("> ")
        except EOFError:
            return
        if text.strip():
            yield _of_text(kind, text, number)


def _batches(asked: Iterator[_Asked], size: int) -> Iterator[list[_Asked]]:
    while batch := list(islice(asked, size)):
        yield batch


def _load(settings: Settings, weights: Weights | None) -> _Ready:
    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()
    # What it says of generation flags is said by this program.
    logging.getLogger("transformers.generation").setLevel(logging.ERROR)
    place = settings.model_name_or_path if weights is None else tokenizer_folder(settings, weights.folder)
    tokenizer = load_tokenizer(replace(settings, model_name_or_path=place))
    coder = make_coder(settings, tokenizer, chats=settings.dataset_format == "chat")
    device = choose_device(settings.device, Place(0, 1, 0, 1))
    model = load_trained(settings, device, weights.folder if weights is not None and weights.is_adapter else None)
    prepare(model)
    decoder = Decoder(model, tokenizer, settings, seed=settings.seed, autocast=autocast_of(settings))
    return _Ready(decoder, tokenizer, coder)


def _answer(ready: _Ready, batch: list[_Asked], number: int, *, as_json: bool, stream: bool) -> None:
    given = [_ids(ready, asked) for asked in batch]
    if stream:
        ready.decoder.stream(given[0], number, lambda text: print(text, end="", flush=True))
        print(flush=True)
        return
    answers = ready.decoder.answer(given, number)
    for asked, answer, kept in zip(batch, answers, given, strict=True):
        print(_json_line(asked, answer, kept) if as_json else answer.text, flush=True)


def _ids(ready: _Ready, asked: _Asked) -> list[int]:
    try:
        ids = encode_prompt(asked.prompt, ready.tokenizer, ready.coder)
    except BadRowError as bad:
        raise ConfigError(f"prompt {asked.line}: {bad}") from bad
    kept = fit(ids, asked.prompt, ready.coder)
    if len(kept) < len(ids):
        tell(
            f"clockgate-train: prompt {asked.line} has {len(ids)} tokens and is cut to {len(kept)}, as in training "
            "(--source_max_len)"
        )
    return kept


def _json_line(asked: _Asked, answer: Answer, kept: Sequence[int]) -> str:
    prompt = asked.prompt
    question: dict[str, object] = {"prompt": prompt.text}
    if prompt.messages is not None:
        question = {"messages": [asdict(message) for message in prompt.messages]}
    told = {
        "line": asked.line,
        **question,
        "prediction": answer.text,
        "prediction_with_input": answer.with_prompt,
        "prompt_tokens": len(kept),
        "tokens": answer.tokens,
        "ended": answer.ended,
    }
    if prompt.wanted:
        told["output"] = prompt.wanted
    return json.dumps(told, ensure_ascii=False)
