#!/usr/bin/env bash
# Fetches the published DDTree builder (MIT, Ringel and Romano) into a folder outside the repository: setup.sh FOLDER
# One file of 25 KB, at a fixed commit and checked; nothing is installed and nothing of it is run here.
set -euo pipefail
folder=${1:?usage: setup.sh FOLDER}
commit=c96427a185677bf4133ed865dd1626a5041aef9b
mkdir -p "$folder"
curl --fail --silent --show-error --location --output "$folder/ddtree.py" \
    "https://raw.githubusercontent.com/liranringel/ddtree/$commit/ddtree.py"
echo "8d0ecd9d07a7266d3825eefd176811502313a0da7cedfcdc8aec1a4971c3a99b  $folder/ddtree.py" | sha256sum --check --quiet
echo "ready: python -m benchmarks.tree --ddtree $folder"
