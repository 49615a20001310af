"""A run to be killed: collects pages until somebody ends it. Arguments: keys of `palus.sampling` as JSON."""

from __future__ import annotations

import json
import sys

from counting_policy import counting_collector, played

if __name__ == "__main__":
    with counting_collector(8, slow=0.002, sampling=json.loads(sys.argv[1])) as collector:
        print(*collector.pids, flush=True)
        while True:
            played(collector)
