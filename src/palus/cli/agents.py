"""What commands do with runs of sampled games before they use the model in them."""

from __future__ import annotations

from pathlib import Path


def refresh_onnx(folder: Path) -> None:
    """Bring `<Behavior>.onnx` of a run up to date: the policy that `palus enjoy` measured last, else the newest.

    Does nothing where there is no agent of a sampled game. Raises CheckpointError, HubError, ModelError, StorageError.
    """
    if not (folder / "configuration.yaml").is_file() or not any(folder.glob("*/**/policy.npz")):
        return
    from palus.config import load_run
    from palus.export.appo_onnx import write_appo_onnx
    from palus.hub.agent_card import read_score
    from palus.run.agent_folder import read_agent

    score = read_score(folder)
    agent = read_agent(folder, "best" if score is not None and score.best else "latest")
    behavior = next(iter(load_run(folder / "configuration.yaml").behaviors))
    write_appo_onnx(folder / f"{behavior}.onnx", agent.arrays, agent.spec, agent.settings)
