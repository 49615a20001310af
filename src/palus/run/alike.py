"""What the ranks of a run have in common: each makes the same parts, and all learners stay the same to the bit."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any

from palus.config import RunFile
from palus.config.load import differing, plain
from palus.errors import CheckpointError, ConfigError
from palus.files import write_bytes
from palus.learn.ranks import Ranks
from palus.run.folder import OwnFiles, RunFolder, read_checkpoint
from palus.run.trainee import Trainee


def not_shared(run: RunFile) -> str | None:
    """Why several ranks cannot train a run; None where they can."""
    if run.torch_settings.device not in (None, "cpu"):
        return f"torch_settings.device {run.torch_settings.device}: ranks compute on CPUs"
    if run.talks:
        return "palus.env: its matches are played over a connection that one process holds"
    for name, behavior in run.behaviors.items():
        if behavior.trainer_type == "sac":
            return f"behaviors.{name}.trainer_type sac: its replay buffer is one process's"
        learned = [signal for signal, own in behavior.reward_signals if own is not None and signal != "extrinsic"]
        if learned:
            return f"behaviors.{name}.reward_signals.{learned[0]}: what it learns is one process's"
    return None


def refuse_another_file(run: RunFile, ranks: Ranks) -> None:
    """Raise ConfigError on every rank where one has another run file than rank 0: their gradients are added up, and
    what each does with the sum is up to its own numbers. Only folders and threads may be those of a machine."""
    tree = plain(run)
    del tree["checkpoint_settings"], tree["palus"]["threads"]
    for rank, apart in enumerate(ranks.gather(next(differing(tree, ranks.first(tree)), None))):
        if apart is not None:
            key, here, there = apart[0], *map(json.dumps, apart[1:])
            raise ConfigError(
                f"rank {rank} has {key} {here}, where rank 0 has {key} {there}; give all ranks the same run file"
            )


def bring_home(root: Path, ranks: Ranks) -> str | None:
    """Copy a run's folder to rank 0 from the rank whose machine has it, where rank 0 has none: torchrun numbers them at
    every start, in the order of their machines' names. Returns what was done, in a sentence; None for nothing.

    root: the run's folder, on every machine; rank 0 holds it. Raises CheckpointError where rank 0 has another one that
    is behind, or a run trains in the other one.
    """
    there = ranks.gather((platform.node(), _steps_in(root)))
    steps = [own for _, own in there]
    furthest = steps.index(max(steps))
    if steps[furthest] <= steps[0]:
        return None
    where = f"rank {furthest} ({there[furthest][0]}) has {root} at step {steps[furthest]:,}"
    if steps[0] >= 0:
        raise CheckpointError(
            f"{where}, rank 0 ({there[0][0]}) at {steps[0]:,}: two runs of one id, or one that was continued without "
            "the other machine; move away the folder that is not to go on, or choose another --run-id"
        )
    with RunFolder(root, []).held() if ranks.rank == furthest else nullcontext():
        paths = RunFolder(root, []).owned("**/*") if ranks.rank == furthest else []
        own_files = {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
    files = ranks.first(own_files, furthest)
    if ranks.rank == 0:
        own = OwnFiles(root)
        own.remove_all()
        for name in sorted(files, key=lambda name: name.endswith("/checkpoint.pt")):  # half a folder has none
            write_bytes(own.add(root / name), files[name])
    ranks.gather(None)  # others may see the same folder: it is whole
    return f"{where}, rank 0 ({there[0][0]}) had none: copied"


def _steps_in(root: Path) -> int:
    """What the learners of a run's folder have trained, together; -1 where there is none."""
    paths = sorted(root.glob("*/checkpoint.pt"))
    if not paths:
        return -1
    try:
        return sum(int(learner[0]) for learner in read_checkpoint(paths[0])["learners"])
    except (CheckpointError, KeyError):  # whoever loads it says what is wrong
        return 0


def shared(saved: dict[str, Any] | None, root: Path, ranks: Ranks) -> dict[str, Any] | None:
    """What rank 0 has loaded, for all; snapshots go along, to where the others keep theirs. root: the run's folder."""
    if ranks.size == 1:
        return saved
    paths = sorted(root.glob("*/snapshots/*.npz")) if saved is not None else []
    saved, files = ranks.first((saved, {str(path.relative_to(root)): path.read_bytes() for path in paths}))
    for name, data in files.items() if ranks.rank else ():
        write_bytes(root / name, data)
    return saved


def begin_alike(trainees: Sequence[Trainee], ranks: Ranks) -> None:
    """Have the learners of all ranks go on as those of rank 0."""
    if ranks.size > 1:
        told = ranks.first([(trainee.step, trainee.learner.state_dict()) for trainee in trainees])
        for trainee, (step, state) in zip(trainees, told, strict=True):
            trainee.step = step
            trainee.learner.load_state_dict(state)


def came_apart(trainees: Sequence[Trainee], ranks: Ranks) -> bool:
    """Whether the weights of some rank are others, since its processor rounds otherwise."""
    if ranks.size == 1:
        return False
    weights = (trainee.learner.network.weights.master.numpy() for trainee in trainees)
    told = ranks.gather([sha256(own.tobytes()).digest() for own in weights])
    return any(own != told[0] for own in told)
