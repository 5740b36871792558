#!/usr/bin/env bash
# Installs PyTorch into a folder: setup.sh DIR
#
# Afterwards DIR/venv/bin/python has it. Run again it leaves everything alone unless the requirements have changed.
# PEER_PYTHON names the Python 3.12 or 3.11 to use; otherwise one is looked for.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 1 ] || { echo "usage: setup.sh DIR" >&2; exit 2; }
mkdir -p "$1"
venv=$(cd "$1" && pwd)/venv

wanted=$(sha256sum <"$here/requirements.txt" | cut -d' ' -f1)
if [ "$(cat "$venv/.stamp" 2>/dev/null)" = "$wanted" ]; then
  exit 0
fi

python=
pyenv="${PYENV_ROOT:-$HOME/.pyenv}"
for candidate in "${PEER_PYTHON:-}" python3.12 python3.11 "$pyenv"/versions/3.12*/bin/python "$pyenv"/versions/3.11*/bin/python python3; do
  [ -n "$candidate" ] || continue
  if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in [(3, 11), (3, 12)])' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || { echo "setup.sh: no Python 3.12 or 3.11 found; PEER_PYTHON can name one" >&2; exit 1; }

echo "torch: installing into $venv; several gigabytes" >&2
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
echo "$wanted" >"$venv/.stamp"
