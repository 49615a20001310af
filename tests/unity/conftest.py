"""These tests need grpcio; without `palus[unity]` there is nothing to collect."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("grpc") else ["test_*.py"]
