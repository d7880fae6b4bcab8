"""The Debian package of this tree, as packaging/build-deb.sh leaves it in dist/, and an older one made of it."""

import shutil
import subprocess
from pathlib import Path

from support.tools import ROOT

OLDER_VERSION = "0.0.9"
OLDER_LINE = "# This line was in the configuration of an older release.\n"
_CONFIG = "etc/clockgate/clockgated.toml"
_TIMEOUT_S = 60


def built_package() -> Path | None:
    """The package in dist/; None when none was built."""
    return max((ROOT / "dist").glob("clockgate_*_all.deb"), key=lambda path: path.stat().st_mtime_ns, default=None)


def older_package(package: Path, folder: Path) -> Path:
    """`package` with a lower version and another default configuration, in `folder`."""
    tree, older = folder / "older", folder / f"clockgate_{OLDER_VERSION}_all.deb"
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True, timeout=_TIMEOUT_S)
    control, config = tree / "DEBIAN/control", tree / _CONFIG
    lines = control.read_text().splitlines(keepends=True)
    control.write_text("".join(f"Version: {OLDER_VERSION}\n" if one.startswith("Version:") else one for one in lines))
    config.write_text(OLDER_LINE + config.read_text())
    built = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(older)]
    subprocess.run(built, check=True, timeout=_TIMEOUT_S, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)
    return older
