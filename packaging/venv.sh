#!/bin/sh
# Make or refresh the development environment:  venv.sh PYTHON FOLDER TORCH TORCH_INDEX
#
# TORCH_INDEX is a further package index for torch alone (the CPU builds), or empty.
set -eu
python=$1 folder=$2 torch=$3 index=$4

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "venv: $("$python" --version) is too old; clockgate needs Python 3.11 or newer (make PYTHON=...)" >&2
    exit 1
}
if [ ! -x "$folder/bin/pip" ]; then
    rm -rf "$folder"
    "$python" -m venv "$folder" 2>/dev/null || {
        # Debian and Ubuntu ship venv apart; root can mend that, others are told how.
        [ "$(id -u)" = 0 ] && apt-get -qq update && apt-get -qq install -y python3-venv >/dev/null &&
            "$python" -m venv "$folder"
    } || {
        echo "venv: $python cannot make a virtual environment; run: apt-get install python3-venv" >&2
        exit 1
    }
fi
echo "venv: installing packages into $folder (the first time takes some minutes)" >&2
# One retry: where the further index cannot be reached, the ordinary one is used without a long wait.
"$folder/bin/pip" install -q ${index:+--retries 1 --extra-index-url "$index"} "$torch"
"$folder/bin/pip" install -q -c packaging/constraints.txt -e '.[daemon,trainer,dev]'
touch "$folder/.ready"
