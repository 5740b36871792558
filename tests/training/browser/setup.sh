#!/usr/bin/env bash
# Unpacks a headless Chromium with the libraries and fonts that it needs: setup.sh DENO DIR
#
# Afterwards DIR/headless starts it. Run again it leaves everything alone unless the version has changed.
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: setup.sh DENO DIR" >&2; exit 2; }
deno=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
version=153.0.0

if [ "$(cat "$folder/.stamp" 2>/dev/null)" = "$version" ]; then
  exit 0
fi
echo "chromium: unpacking into $folder" >&2
cd "$folder"
# The package unpacks itself into the folder for temporary files; the libraries only where it believes to be in a bare
# container, which is what this variable says.
TMPDIR="$folder" AWS_EXECUTION_ENV=AWS_Lambda_nodejs22.x "$deno" run --quiet --no-lock --no-config --allow-env --allow-sys \
  --allow-read --allow-write="$folder" - <<CODE
import chromium from "npm:@sparticuz/chromium@$version";
const path = await chromium.executablePath();
if (path !== "$folder/chromium") throw new Error("unpacked to " + path);
CODE
# A program of its own: whoever may start only named programs may not set this variable for them.
printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "'$folder/al2023/lib'" "'$folder/chromium'" >headless
chmod +x headless
echo "$version" >.stamp
