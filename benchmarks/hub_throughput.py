"""How fast the hub takes and gives models on loopback, with the unmodified `huggingface_hub`.

    python benchmarks/hub_throughput.py           measures, writes results/hub-throughput.json and its table

A run's folder as training leaves it (checkpoints of 28 MB, random bytes) is pushed by `upload_folder`, pushed again
unchanged, and fetched by `snapshot_download` into an empty cache. Client and server share the machine.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import huggingface_hub
from huggingface_hub import HfApi
from huggingface_hub.utils.tqdm import disable_progress_bars

from machine import RESULTS, Json, Session, caption, save, table
from palus.hub.accounts import create_account, issue_token
from palus.store import open_store

OWNER, CHECKPOINT_BYTES = "bench", 28_000_000
SERVE = """
import sys, uvicorn
from pathlib import Path
from palus.store import open_store
from palus.web.app import make_app
uvicorn.run(make_app(open_store(Path(sys.argv[1]))), fd=int(sys.argv[2]), log_level="error")
"""


def peak_mb(process: subprocess.Popen[bytes]) -> float:
    """Peak resident memory of a process so far; Linux tells."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return float("nan")


def make_folder(folder: Path, files: int) -> float:
    """Write the run; returns its megabytes."""
    (folder / "SoccerTwos").mkdir(parents=True)
    (folder / "README.md").write_text("---\ntags: [reinforcement-learning]\n---\n# A team\n")
    (folder / "SoccerTwos.onnx").write_bytes(os.urandom(1_770_000))
    for number in range(files):
        (folder / "SoccerTwos" / f"checkpoint-{number}.pt").write_bytes(os.urandom(CHECKPOINT_BYTES))
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def timed(work: object) -> float:
    """Seconds that a call takes."""
    started = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - started


def measure(api: HfApi, folder: Path, files: int, number: int) -> Json:
    """One push, one unchanged push, one download."""
    run, repo = folder / f"run-{number}", f"{OWNER}/run-{number}"
    megabytes = make_folder(run, files)
    api.create_repo(repo)
    push = timed(lambda: api.upload_folder(repo_id=repo, folder_path=run))
    again = timed(lambda: api.upload_folder(repo_id=repo, folder_path=run))
    pull = timed(lambda: api.snapshot_download(repo, cache_dir=folder / f"cache-{number}"))
    return {"megabytes": megabytes, "push_s": push, "unchanged_s": again, "pull_s": pull}


def markdown(report: Json) -> str:
    """Medians over the rounds."""
    rounds = report["rounds"]
    size = rounds[0]["megabytes"]
    rows = [
        [what, f"{median(r[key] for r in rounds):.2f}", f"{size / median(r[key] for r in rounds):.0f}"]
        for what, key in (("push", "push_s"), ("push again, unchanged", "unchanged_s"), ("download", "pull_s"))
    ]
    parts = [
        "# The hub on loopback",
        "Made by `python benchmarks/hub_throughput.py` from hub-throughput.json beside it.",
        caption(report),
        f"{size:.0f} MB in {report['files'] + 2} files, huggingface_hub {report['client']}, median of {len(rounds)} "
        f"rounds; peak memory of the server {report['server_peak_mb']:.0f} MB.",
        table(["what", "seconds", "MB/s"], rows),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=6, help="checkpoints of 28 MB")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    disable_progress_bars()
    session = Session("hub-throughput", vars(arguments))
    with tempfile.TemporaryDirectory() as name, socket.socket() as listener:
        folder = Path(name)
        store = open_store(folder / "arena")
        with store.write() as connection:
            create_account(connection, OWNER)
            token = issue_token(connection, OWNER, "bench")
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        listener.set_inheritable(True)
        command = [sys.executable, "-c", SERVE, str(folder / "arena"), str(listener.fileno())]
        with subprocess.Popen(command, pass_fds=[listener.fileno()]) as server:
            api = HfApi(endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}", token=token)
            api.whoami()  # the server is up
            rounds = [measure(api, folder, arguments.files, number) for number in range(arguments.rounds)]
            peak = peak_mb(server)
            server.terminate()
        store.close()
    figures = {
        "client": huggingface_hub.__version__,
        "files": arguments.files,
        "rounds": rounds,
        "server_peak_mb": peak,
    }
    save(session.report(**figures), RESULTS / "hub-throughput.json", markdown)


if __name__ == "__main__":
    main()
