"""Generate the committed code and descriptors beside the .proto files, or with --check compare them.

Run with an interpreter that has protos/requirements.txt installed (`make protos` does both).
"""

import argparse
import importlib.resources
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent
OWN = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "clockgate/v1").glob("*.proto"))
STANDARD = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "clockgate/wire").glob("*.proto"))


def generate(out: Path) -> None:
    """Write every generated file below `out`, laid out as below protos/."""
    plugin_folder = Path(sys.executable).parent
    protoc = [
        sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}",
        f"-I{importlib.resources.files('grpc_tools') / '_proto'}",
    ]  # fmt: skip
    for folder in ("clockgate/v1", "clockgate/wire"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *protoc,
            f"--plugin=protoc-gen-mypy={plugin_folder / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={plugin_folder / 'protoc-gen-mypy_grpc'}",
            f"--python_out={out}", f"--grpc_python_out={out}",
            f"--mypy_out=quiet:{out}", f"--mypy_grpc_out=quiet:{out}",
            # With comments: server reflection hands these to people who ask `describe`.
            "--include_source_info", f"--descriptor_set_out={out / 'clockgate/v1/descriptors.binpb'}",
            *OWN,
        ],
        check=True,
    )  # fmt: skip
    subprocess.run(
        [*protoc, "--include_imports", f"--descriptor_set_out={out / 'clockgate/wire/standard.binpb'}", *STANDARD],
        check=True,
    )


def stale(fresh: Path) -> list[str]:
    """Names of committed files that differ from what the generator writes, missing and extra ones included."""
    made = {path.relative_to(fresh).as_posix(): path.read_bytes() for path in fresh.rglob("*") if path.is_file()}
    patterns = ("*_pb2*.py", "*_pb2*.pyi", "*.binpb")
    kept = {path.relative_to(ROOT).as_posix(): path.read_bytes() for p in patterns for path in ROOT.rglob(p)}
    return sorted(name for name in made.keys() | kept.keys() if made.get(name) != kept.get(name))


def main() -> int:
    """Generate in place, or with --check exit 1 and name the stale files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the committed files, write nothing")
    if not parser.parse_args().check:
        generate(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        names = stale(Path(folder))
    for name in names:
        print(f"protos/{name} is stale: run `make protos` and commit", file=sys.stderr)
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
