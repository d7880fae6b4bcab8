"""Rows of .parquet files. Any bytes give rows or faults, never an error."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clockgate_trainer.data.record import Fault, Kind, Record
from clockgate_trainer.errors import ConfigError

_ROWS_AT_ONCE = 1000


def parquet_rows(path: Path) -> Iterator[Record | Fault]:
    """All rows, numbered from 1. Raises OSError, and ConfigError when pyarrow is not installed."""
    try:
        # Heavy, and wanted for this kind of file alone.
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError as err:
        raise ConfigError(f"{path} cannot be read without pyarrow: pip install 'clockgate[hub]'") from err
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                for place in range(batch.num_rows):
                    number += 1
                    yield _row(batch, place, number)
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as err:
        if isinstance(err, OSError) and err.errno is not None:
            raise
        text = " ".join(str(err).split())[:200]
        yield Fault(None, Kind.UNREADABLE, f"not a parquet file that can be read, after row {number}: {text}")


def _row(batch: Any, place: int, number: int) -> Record | Fault:
    try:
        rows: list[dict[str, Any]] = batch.slice(place, 1).to_pylist()
    except UnicodeDecodeError as err:
        return Fault(number, Kind.NOT_UTF8, f"a text holds byte {err.object[err.start]:#04x}, which is not UTF-8")
    return Record(number, rows[0])
