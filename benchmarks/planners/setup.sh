#!/usr/bin/env bash
# Installs each planner that Deepdraft's is compared with into an environment of its own: setup.sh FOLDER
# About 1.1 GB, most of it aiconfigurator's measurements. One that can't be installed here is left out and named.
set -uo pipefail
folder=${1:?usage: setup.sh FOLDER}
mkdir -p "$folder"
for package in aiconfigurator==0.12.0 hf-mem==0.5.6 kvfit==0.3.0 llm-mem-planner==0.2.2 modelinfo-cli==1.4.4 \
    ridgepoint==0.1.2 vramscout==0.7.0; do
    name=${package%%==*}
    [ -x "$folder/$name/bin/python" ] || python3 -m venv "$folder/$name"
    "$folder/$name/bin/python" -m pip install --quiet "$package" || { echo "not installed: $package" >&2; rm -r "${folder:?}/$name"; }
done
