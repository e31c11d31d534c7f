#!/usr/bin/env bash
# Installs everything the tests need into an environment of their own and runs all checks.
#
#   bash scripts/test.sh [arguments for pytest]
#
# The environment is made afresh in a temporary folder and removed again. KVLINT_VENV names a folder to keep it in:
# with one that exists the second run starts sooner. PYTHON names the interpreter (default: python3); the versions in
# constraints/ci.txt want 3.11 or newer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python3}
if [ -n "${KVLINT_VENV:-}" ]; then
    venv=$KVLINT_VENV
else
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    venv=$scratch/venv
fi

if [ ! -x "$venv/bin/python" ]; then
    "$python" -m venv "$venv"
fi
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints/ci.txt)
"${pip[@]}" torch
"${pip[@]}" '.[runtime,dev,docs]' transformers numpy
"$venv/bin/python" scripts/install_transformers4.py

export PATH="$venv/bin:$PATH"
ruff check .
ruff format --check .
mypy
pytest -n 2 "$@"
