#!/usr/bin/env bash
# Makes the environment in which sf_run.py runs Sample Factory 2.1.1: benchmarks/peer/sf/.venv, or the folder given.
#   PYTHON=python3.11 benchmarks/peer/setup_sample_factory.sh [FOLDER]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-$here/sf/.venv}
python=${PYTHON:-python3.11}

echo "peer: installing Sample Factory 2.1.1 into $folder"
"$python" -m venv "$folder"
# It needs numpy < 2 and gymnasium < 1; torch is the release that palus is measured with.
"$folder/bin/pip" install -qq --disable-pip-version-check \
  "torch==2.13.0" "numpy<2" "sample-factory==2.1.1" "vizdoom>=1.3,<1.4" "gymnasium<1.0"
"$folder/bin/python" -W ignore -c 'import torch, sample_factory; print("peer: ready, torch", torch.__version__)'
