#!/usr/bin/env bash
# Runs the accelerator part of the runtime check and writes its figures as JSON, in under four minutes.
#
#   scripts/gpu_check.sh [--device cuda] [--limit SECONDS] [--only WORD] OUTPUT.json
#
# Takes the torch and transformers of PYTHON (default: python3) where they are there, and installs "kvlint[runtime]" into an
# environment of its own otherwise (KVLINT_VENV names a folder to keep it in); installing does not count in the four minutes.
# "--device cpu" is a dry run of the same parts, small. The JSON is written anew after every part. Exit code: 0 everything
# held; 1 a part failed; 2 something that should have been run was not, or the environment cannot run it.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="${PYTHON:-python3}"

if [ "$#" -eq 0 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 2
fi

if ! "${python}" -c "import torch, transformers" 2>/dev/null; then
    venv="${KVLINT_VENV:-}"
    if [ -z "${venv}" ]; then
        scratch="$(mktemp -d)"
        trap 'rm -rf "${scratch}"' EXIT
        venv="${scratch}/venv"
    fi
    echo "gpu_check: ${python} has no torch or no transformers; installing them into ${venv}" >&2
    [ -x "${venv}/bin/python" ] || "${python}" -m venv --system-site-packages "${venv}" || exit 2
    "${venv}/bin/python" -m pip install --quiet --disable-pip-version-check "${here}[runtime]" || {
        echo 'gpu_check: they could not be installed; pip install "kvlint[runtime]" by hand and set PYTHON' >&2
        exit 2
    }
    python="${venv}/bin/python"
fi

# The checks build their models from configurations: nothing is asked of the network from here on.
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export PYTHONPATH="${here}${PYTHONPATH:+:${PYTHONPATH}}"

"${python}" - "$@" <<'CHECK' || exit 2
import sys

import torch

from kvlint.runtime.environment import RuntimeUnavailable, load_transformers

try:
    load_transformers()
except RuntimeUnavailable as error:
    sys.exit(f"gpu_check: {error}")
arguments = sys.argv[1:]
device = next((word.split("=", 1)[1] for word in arguments if word.startswith("--device=")), "cuda")
if "--device" in arguments[:-1]:
    device = arguments[arguments.index("--device") + 1]
if device.startswith("cuda") and not torch.cuda.is_available():
    sys.exit("gpu_check: torch sees no CUDA device (--device cpu is a dry run)")
CHECK

"${python}" -m kvlint.runtime.accelerator "$@"
