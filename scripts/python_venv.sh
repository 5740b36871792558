#!/usr/bin/env bash
# Installs Python packages into a folder: python_venv.sh REQUIREMENTS DIR WHAT
#
# Afterwards DIR/venv/bin/python has them. Run again it leaves everything alone unless the requirements have changed. WHAT names
# them in the one line that is printed. PEER_PYTHON names the Python 3.12 or 3.11 to use; otherwise one is looked for.
set -euo pipefail
[ $# -eq 3 ] || { echo "usage: python_venv.sh REQUIREMENTS DIR WHAT" >&2; exit 2; }
requirements=$1
mkdir -p "$2"
venv=$(cd "$2" && pwd)/venv

wanted=$(sha256sum <"$requirements" | cut -d' ' -f1)
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
[ -n "$python" ] || { echo "python_venv.sh: no Python 3.12 or 3.11 found; PEER_PYTHON can name one" >&2; exit 1; }

echo "$3: installing into $venv" >&2
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
echo "$wanted" >"$venv/.stamp"
