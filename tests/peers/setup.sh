#!/usr/bin/env bash
# Installs the real Python backend, its IPC test harness and the config service into a folder.
#
#   setup.sh DIR
#
# Afterwards DIR/venv holds sie-server, sie-config and sie-sdk 0.10.1. Run again it leaves everything alone unless the
# requirements have changed. PEER_PYTHON names the Python 3.12 to use; otherwise one is looked for.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 1 ] || { echo "usage: setup.sh DIR" >&2; exit 2; }
mkdir -p "$1"
venv=$(cd "$1" && pwd)/venv

# A venv holds its own path, so one that was moved is made anew.
wanted="$(sha256sum <"$here/requirements.txt" | cut -d' ' -f1) $venv"
if [ "$(cat "$venv/.stamp" 2>/dev/null)" = "$wanted" ]; then
  exit 0
fi

python=
for candidate in "${PEER_PYTHON:-}" python3.12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12*/bin/python python3; do
  [ -n "$candidate" ] || continue
  if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || { echo "setup.sh: no Python 3.12 found; PEER_PYTHON can name one" >&2; exit 1; }

echo "peers: installing into $venv; about half a minute"
"$python" -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$here/requirements.txt"
echo "$wanted" >"$venv/.stamp"
