"""Lets the tests of this folder import the recipes, which are scripts and no package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
