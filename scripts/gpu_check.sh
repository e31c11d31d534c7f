#!/usr/bin/env bash
# Runs the accelerator part of the runtime check and writes its figures as JSON, in under five minutes.
#
#   scripts/gpu_check.sh [--device cuda] [--limit SECONDS] [--only WORD] OUTPUT.json
#
# Needs torch with CUDA, transformers 5.24 or newer, and nothing from the network. "--device cpu" is a dry run of the
# same parts, small. Exit code 1 when a part failed, 2 when the environment cannot run it.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="${PYTHON:-python3}"

if [ "$#" -eq 0 ]; then
    sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 2
fi

export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export PYTHONPATH="${here}${PYTHONPATH:+:${PYTHONPATH}}"

"${python}" - "$@" <<'CHECK' || exit 2
import sys

try:
    import torch
    import transformers
except ImportError as error:
    sys.exit(f'gpu_check: {error}: pip install "kvlint[runtime]"')
arguments = sys.argv[1:]
device = arguments[arguments.index("--device") + 1] if "--device" in arguments else "cuda"
if device.startswith("cuda") and not torch.cuda.is_available():
    sys.exit("gpu_check: torch sees no CUDA device (--device cpu is a dry run)")
CHECK

exec "${python}" -m kvlint.runtime.accelerator "$@"
