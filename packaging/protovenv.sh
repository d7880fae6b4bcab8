#!/bin/sh
# Make the environment of the pinned protocol buffer generator:  protovenv.sh PYTHON FOLDER
set -eu
python=$1 folder=$2
# The generator's wheels end at Python 3.11, whatever the development environment uses.
command -v python3.11 >/dev/null && python=python3.11
[ -x "$folder/bin/pip" ] || "$python" -m venv "$folder"
"$folder/bin/pip" install -q -r protos/requirements.txt || {
    echo "protovenv: grpcio-tools 1.51.1 has wheels for Python 3.11 and older only; $("$python" --version) found" >&2
    exit 1
}
touch "$folder/.ready"
