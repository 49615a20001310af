"""ML-Agents' own `mlagents-learn`, on a torch that exports ONNX by another way unless told not to.

benchmarks/peer/.venv/bin/python -W ignore benchmarks/peer/learn.py config.yaml --env=Game --run-id=x
"""

from __future__ import annotations

import functools

import torch

torch.onnx.export = functools.partial(torch.onnx.export, dynamo=False)  # the only way when ML-Agents was written

from mlagents.trainers.learn import main  # noqa: E402

if __name__ == "__main__":
    main()
