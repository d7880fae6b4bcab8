"""Text of `clockgate-train --help`, made from the table. Pure."""

import textwrap

from clockgate_trainer.flags.flag import Flag, Type
from clockgate_trainer.flags.presets import PRESETS
from clockgate_trainer.flags.table import FLAGS, GROUPS, UNSUPPORTED

_COLUMN = 34
_HEAD = """\
usage: clockgate-train [--flag value ...]        train
       clockgate-train [--preset NAME] [--config RUN.yaml] [--print_config] [--flag value ...]
       clockgate-train launch [torchrun arguments] -- [--flag value ...]
       clockgate-train plan [--gpu NAME] [--gpus N] [--nodes N] [--json] [--flag value ...]
       clockgate-train lint PATH [...] [--json] [--fix OUT.jsonl] [--flag value ...]
       clockgate-train generate [PATH] [--best] [--prompt TEXT | --prompts FILE] [--json] [--flag value ...]
       clockgate-train merge PATH --output FOLDER [--best] [--base dequantised|full] [--flag value ...]
       clockgate-train evaluate PATH [--best] [--json] [--flag value ...]
       clockgate-train evaluate ratings FILE [...] [--baseline NAME] [--json]
       clockgate-train verify CHECKPOINT [...]
       clockgate-train repair FOLDER [--dry-run] [--json]
       clockgate-train --version

Trains a QLoRA adapter. Gradient exchange and checkpoint saves wait for one verdict of all ranks on their clocks.
Presets: {presets}.
A preset gives way to a run file, and both to flags; --print_config shows what they come to.
A switch may stand alone or be followed by true or false. The last of several equal flags wins.
"""
_TAIL = """\
exit codes: 0 done, 2 usage, 75 stopped with a checkpoint, 76 stopped without one, 77 ranks out of step,
            78 configuration or data, 79 a rank died or did not answer
"""


def help_text(width: int = 110) -> str:
    """The whole help, `width` columns wide at most."""
    parts = [_HEAD.format(presets=", ".join(PRESETS))]
    for group in GROUPS:
        rows = [_row(flag, width) for flag in FLAGS if flag.group == group]
        parts.append(f"{group}:\n" + "\n".join(rows) + "\n")
    names = ", ".join(row.name for row in UNSUPPORTED if row.inert is not None)
    parts.append(textwrap.fill(f"known from qlora.py, not supported: {names}", width, subsequent_indent="  ") + "\n")
    parts.append(_TAIL)
    return "\n".join(parts)


def _row(flag: Flag, width: int) -> str:
    left = f"  --{flag.name} {_placeholder(flag)}".rstrip()
    text = f"{flag.help} ({_default(flag)})"
    lines = textwrap.wrap(text, width - _COLUMN)
    if len(left) >= _COLUMN:
        return "\n".join([left, *(" " * _COLUMN + line for line in lines)])
    return left.ljust(_COLUMN) + ("\n" + " " * _COLUMN).join(lines)


def _placeholder(flag: Flag) -> str:
    if flag.choices:
        return "|".join(flag.choices) if len(flag.choices) <= 3 else "NAME"
    return {Type.BOOL: "", Type.INT: "N", Type.FLOAT: "X", Type.TEXT: "TEXT", Type.PATH: "PATH"}[flag.type]


def _default(flag: Flag) -> str:
    choices = f"one of {', '.join(flag.choices)}; " if len(flag.choices) > 3 else ""
    if flag.default is None:
        return f"{choices}default: {flag.unset}"
    shown = str(flag.default).lower() if flag.type is Type.BOOL else str(flag.default)
    return f"{choices}default: {shown}"
