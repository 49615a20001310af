#!/usr/bin/env bash
# Makes the environment in which measure.py runs ML-Agents 1.1.0: benchmarks/peer/.venv, or the folder given.
#   PYTHON=python3.11 benchmarks/peer/setup.sh [FOLDER]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-$here/.venv}
python=${PYTHON:-python3.11}

if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
  echo "peer: '$python' is not Python 3.11, the one version both sides run on; name one with PYTHON=/path/to/python3.11" >&2
  exit 1
fi
echo "peer: installing ML-Agents 1.1.0 into $folder"
"$python" -m venv "$folder"
"$folder/bin/pip" install -qq --disable-pip-version-check -r "$here/requirements.txt"
# Its metadata stops at Python 3.10.12; the pins above stand in for the dependencies it would resolve.
"$folder/bin/pip" install -qq --disable-pip-version-check --no-deps --ignore-requires-python \
  mlagents==1.1.0 mlagents-envs==1.1.0
"$folder/bin/python" -W ignore -c 'import torch, mlagents.trainers.trainer_controller; print("peer: ready, torch", torch.__version__)'
