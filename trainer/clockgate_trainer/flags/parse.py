"""From the command line to `Settings`. Reads argv and the file that --config names, nothing else.

Accepts `--flag value`, `--flag=value`, a bare switch for true, and `--no_flag` for a switch that is on by default; the
last of several wins, as with argparse. Never matches a prefix, never drops what it does not know. A preset gives way to
a run file, and both to flags.
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clockgate_trainer.errors import UsageError
from clockgate_trainer.flags.arguments import ARGUMENTS
from clockgate_trainer.flags.config_file import words_of
from clockgate_trainer.flags.evaluation import check_evaluation, evaluation_notices
from clockgate_trainer.flags.flag import Flag, Type, Unsupported
from clockgate_trainer.flags.generation import check_generation
from clockgate_trainer.flags.memory_flags import read_device_map, read_max_memory
from clockgate_trainer.flags.modules import choice
from clockgate_trainer.flags.precision import check_precision, precision_notices
from clockgate_trainer.flags.presets import preset_words
from clockgate_trainer.flags.spellings import other_spellings, respell, straighten
from clockgate_trainer.flags.table import FLAGS, UNSUPPORTED, Settings

_TRUE = ("true", "yes", "t", "y", "on", "1")
_FALSE = ("false", "no", "f", "n", "off", "0")
# People put the token itself behind these; a log keeps what is told.
_SECRET = ("hub_token", "use_auth_token")
_SEE_HELP = "clockgate-train --help lists all flags"


@dataclass(frozen=True)
class CommandLine:
    """What a command line asks for. `notices`: how other spellings were read. `print_config`: show, do not train."""

    settings: Settings
    notices: tuple[str, ...] = ()
    print_config: bool = False


def parse(argv: Sequence[str]) -> Settings:
    """Settings of this command line. Raises UsageError that names the flag, the value seen and the value wanted."""
    return read_command_line(argv).settings


def read_command_line(argv: Sequence[str]) -> CommandLine:
    """Everything that this command line says. Raises UsageError like `parse`."""
    straight = [straighten(word) for word in argv]
    said = [
        f"{word} is read as {own}: its dash is a typographic one"
        for word, own in zip(argv, straight, strict=True)
        if word != own
    ]
    words, print_config = _expand(straight)
    given: dict[str, Any] = {}
    while words:
        name, value = _take(words)
        spelled = respell(name, value)
        flag = _BY_NAME.get(name)
        if spelled is not None:
            said.append(spelled.notice)
            words[:0] = spelled.words
        elif flag is not None:
            given[flag.name] = _read(flag, value)
        elif name in _UNSUPPORTED:
            _refuse_unless_inert(_UNSUPPORTED[name], value)
            if _UNSUPPORTED[name].inert is None:
                said.append(f"--{name} changes nothing here")
        else:
            _reject(name)
    _check_together(given)
    return CommandLine(Settings(**given), tuple(dict.fromkeys(said)), print_config)


def _expand(argv: Sequence[str]) -> tuple[list[str], bool]:
    """Put the words of --preset and --config before the flags, which then win; tell whether --print_config is there."""
    preset: list[str] = []
    from_file: list[str] = []
    rest: list[str] = []
    print_config = False
    words = list(argv)
    while words:
        name = words[0][2:].partition("=")[0] if words[0].startswith("--") else ""
        if name not in ("preset", "config", "print_config"):
            rest.append(words.pop(0))
            continue
        _, value = _take(words)
        if name == "print_config":
            print_config = value is None or _convert(name, Type.BOOL, value, Type.BOOL.value)
        elif not value:
            raise UsageError(f"--{name} has no value: wanted {'a name' if name == 'preset' else 'a YAML file'}")
        elif name == "preset":
            preset += preset_words(value)
        else:
            from_file += words_of(Path(value))
    return [*preset, *from_file, *rest], print_config


def notices(settings: Settings) -> tuple[str, ...]:
    """What a person should know about these settings before they run, one sentence each."""
    found = [*precision_notices(settings)]
    if settings.lr_scheduler_type == "constant" and settings.warmup_steps:
        found.append(
            "--lr_scheduler_type constant has no warm-up: --warmup_steps has no effect; use constant_with_warmup"
        )
    if settings.keep_steps and not settings.packing:
        found.append("--keep_steps has no effect without --packing")
    if settings.max_memory is not None and settings.device_map != "auto":
        found.append("--max_memory limits plan and --device_map auto alone: every rank loads a whole copy here")
    if settings.pack_length is not None and not settings.packing:
        found.append("--pack_length has no effect without --packing")
    return (*found, *evaluation_notices(settings))


def _names(flag: Flag) -> dict[str, Flag]:
    return dict.fromkeys((flag.name, *flag.aliases), flag)


_BY_NAME: Mapping[str, Flag] = {name: flag for each in FLAGS for name, flag in _names(each).items()}
_UNSUPPORTED: Mapping[str, Unsupported] = {row.name: row for row in (*UNSUPPORTED, *ARGUMENTS)}
_ON_BY_DEFAULT = {f"no_{flag.name}": flag.name for flag in FLAGS if flag.default is True}


def _take(words: list[str]) -> tuple[str, str | None]:
    """Take one flag and its value, if it has one, off the front of `words`."""
    word = words.pop(0)
    if not word.startswith("--") or word == "--":
        raise UsageError(f"unexpected argument {word!r}: wanted --flag value. {_SEE_HELP}")
    name, equals, value = word[2:].partition("=")
    if name in _ON_BY_DEFAULT and not equals:
        return _ON_BY_DEFAULT[name], "false"
    if equals:
        return name, value
    if words and not words[0].startswith("--"):
        return name, words.pop(0)
    return name, None


def _read(flag: Flag, text: str | None) -> Any:
    if text is None:
        text = flag.bare
    if text is None:
        raise UsageError(f"--{flag.name} has no value: wanted {_wanted(flag)}")
    if flag.choices:
        text = text.lower()
        reason = dict(flag.refused).get(text)
        if reason is not None:
            raise UsageError(f"--{flag.name} {text} is not supported: {reason}")
        if text not in flag.choices:
            raise UsageError(f"--{flag.name} is {text!r}: wanted {_wanted(flag)}")
    value = _convert(flag.name, flag.type, text, _wanted(flag))
    if isinstance(value, int | float) and not _inside(flag, value):
        raise UsageError(f"--{flag.name} is {text!r}: wanted {_wanted(flag)}")
    return value


def _convert(name: str, kind: Type, text: str, wanted: str) -> Any:
    seen = "a text that is not repeated here" if name in _SECRET else repr(text)
    problem = f"--{name} is {seen}: wanted {wanted}"
    if kind is Type.BOOL:
        if text.lower() not in _TRUE + _FALSE:
            raise UsageError(problem)
        return text.lower() in _TRUE
    if kind in (Type.INT, Type.FLOAT):
        try:
            number = int(text) if kind is Type.INT else float(text)
            fits = math.isfinite(number)
        except (ValueError, OverflowError):
            raise UsageError(problem) from None
        if not fits:
            raise UsageError(problem)
        return number
    if not text:
        raise UsageError(f"--{name} is empty: wanted {wanted}")
    return Path(text) if kind is Type.PATH else text


def _inside(flag: Flag, value: float) -> bool:
    return (flag.low is None or value >= flag.low) and (flag.high is None or value <= flag.high)


def _wanted(flag: Flag) -> str:
    if flag.choices:
        return "one of " + ", ".join(flag.choices)
    if flag.low is not None and flag.high is not None:
        return f"{flag.type.value} from {flag.low:g} to {flag.high:g}"
    if flag.low is not None:
        return f"{flag.type.value}, {flag.low:g} or more"
    return flag.type.value


def _refuse_unless_inert(row: Unsupported, text: str | None) -> None:
    if text is None and row.type is not Type.BOOL:
        raise UsageError(f"--{row.name} has no value: wanted {row.type.value}")
    value = _convert(row.name, row.type, "true" if text is None else text, row.type.value)
    if row.inert is None or value in row.inert:
        return
    hint = f": {row.instead}" if row.instead else ""
    shown = "" if row.name in _SECRET else f" {value}"
    raise UsageError(f"--{row.name}{shown} is not supported{hint}. Leave it out")


def _reject(name: str) -> None:
    near = difflib.get_close_matches(name, [*_BY_NAME, *_UNSUPPORTED, *other_spellings()], n=1, cutoff=0.6)
    hint = f"did you mean --{near[0]}? " if near else ""
    raise UsageError(f"unknown flag --{name}: {hint}{_SEE_HELP}")


def _check_together(given: Mapping[str, Any]) -> None:
    """Refuse flags that contradict each other."""
    settings = Settings(**given)
    if settings.warn_delay_ms > settings.max_sync_delay:
        raise UsageError(
            f"--warn_sync_delay is {settings.warn_delay_ms:g} ms: wanted at most --max_sync_delay, "
            f"{settings.max_sync_delay:g} ms"
        )
    check_generation(settings)
    check_evaluation(settings)
    _check_prediction(settings)
    choice(settings.lora_modules)
    if settings.device_map is not None:
        read_device_map(settings.device_map)
    if settings.max_memory is not None:
        read_max_memory(settings.max_memory)
    check_precision(settings)
    if settings.num_train_epochs is not None and given.get("max_steps", -1) > 0:
        raise UsageError("--max_steps and --num_train_epochs are both given: wanted one of them")
    if settings.max_steps <= 0 and settings.num_train_epochs is None:
        raise UsageError(f"--max_steps is {settings.max_steps}: wanted 1 or more, or --num_train_epochs")


def _check_prediction(settings: Settings) -> None:
    if not settings.do_train and (settings.evaluates or not settings.do_predict):
        raise UsageError(
            "--do_train is false: only --do_predict goes on from there; clockgate-train evaluate evaluates a checkpoint"
        )
    if settings.do_predict and settings.train_on_source:
        raise UsageError(
            "--do_predict with --train_on_source: a row that is learned from its start does not tell what is asked. "
            "Leave one out, or answer afterwards with clockgate-train generate RUN --prompts FILE"
        )
