"""A run to be killed: samples pages until somebody ends it. Arguments: keys of `palus.sampling` as JSON."""

from __future__ import annotations

import json
import sys

from sampled_games import counting_sampler

if __name__ == "__main__":
    with counting_sampler(8, slow=0.002, sampling=json.loads(sys.argv[1])) as sampler:
        print(*sampler.pids, flush=True)
        while True:
            sampler.collect()
