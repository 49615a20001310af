"""What a valid run file is worth saying about: derived values with their reasons, and what palus cannot train yet."""

from __future__ import annotations

from collections.abc import Iterator

from palus.config.environment import ConstantSampler, Curriculum, EnvironmentParameter
from palus.config.network import VISUAL_ENCODERS
from palus.config.run_file import PalusSettings, RunFile
from palus.config.trainer import AppoBehavior, Behavior, OnPolicyHyperparameters, SacBehavior


def notes(run: RunFile) -> list[str]:
    """Values that the file did not write but implies, each with its reason, and keys that have no effect."""
    lines = [line for name, behavior in run.behaviors.items() for line in _behavior_notes(name, behavior)]
    if run.palus.env is None and run.env_id is not None:
        lines.append(f"palus.env {run.env_id}: there is a behavior of that name and no env_settings.env_path")
    if run.env_settings.env_path is None and run.env_settings.num_envs > 1:
        has = "palus.sampling" if run.is_sampled else "palus.num_matches"
        lines.append(f"env_settings.num_envs has no effect on a built-in game; {has} has")
    lines += _palus_notes(run)
    for name, parameter in (run.environment_parameters or {}).items():
        if isinstance(parameter, Curriculum) and parameter.curriculum[-1].completion_criteria is not None:
            last = parameter.curriculum[-1].name
            lines.append(f"environment_parameters.{name}: completion_criteria of the last lesson {last} have no effect")
        lines += _curriculum_notes(name, parameter) if isinstance(parameter, Curriculum) else []
    return lines


def _palus_notes(run: RunFile) -> Iterator[str]:
    """Keys of `palus` that the trainer or the game does not read; the harmful ones are refused by `unsupported`."""
    default = PalusSettings()
    written = {key for key, value in run.palus if value != getattr(default, key)}
    if run.is_sampled and "num_matches" in written:
        yield "palus.num_matches has no effect on an appo behavior; palus.sampling has"
    if not run.is_sampled and "sampling" in written:
        yield "palus.sampling has an effect on an appo behavior only; palus.num_matches has one here"
    if run.env_id != "SoccerTwos":
        for key in ("baselines", "baseline_interval", "baseline_pairs"):
            if key in written:
                yield f"palus.{key} has an effect on SoccerTwos only"


def _curriculum_notes(name: str, curriculum: Curriculum) -> Iterator[str]:
    """Criteria that mean nothing where lessons follow the run's progress."""
    for lesson in curriculum.curriculum[:-1]:
        for key in ("min_lesson_length", "require_reset"):
            if lesson.completion_criteria is not None and getattr(lesson.completion_criteria, key):
                yield f"environment_parameters.{name}: {key} of lesson {lesson.name} has no effect"


def _behavior_notes(name: str, behavior: Behavior) -> Iterator[str]:
    hyper, play = behavior.hyperparameters, behavior.self_play
    if isinstance(hyper, OnPolicyHyperparameters):
        for key in ("beta_schedule", "epsilon_schedule"):
            if key not in hyper.model_fields_set:
                yield f"{name}: {key} {getattr(hyper, key)} follows learning_rate_schedule"
        batches, left = divmod(hyper.buffer_size, hyper.batch_size)
        if left:
            yield (
                f"{name}: buffer_size {hyper.buffer_size} is not a multiple of batch_size {hyper.batch_size}: "
                f"{batches} full minibatches and {left} rows over"
            )
    if isinstance(behavior, AppoBehavior):
        yield from _appo_notes(name, behavior)
    if behavior.even_checkpoints:
        yield (
            f"{name}: checkpoint_interval {behavior.checkpoint_interval} = max_steps {behavior.max_steps} / "
            f"keep_checkpoints {behavior.keep_checkpoints} (even_checkpoints)"
        )
    if play is not None and "team_change" not in play.model_fields_set and not isinstance(behavior, AppoBehavior):
        yield f"{name}: team_change {play.team_change} = 5 x save_steps"
    if behavior.reward_signals.extrinsic is None:
        yield f"{name}: reward_signals has no extrinsic, so the game's own reward is left out"
    if behavior.threaded:
        yield f"{name}: threaded has no effect; palus uses all threads anyway"


def _appo_notes(name: str, behavior: AppoBehavior) -> Iterator[str]:
    hyper = behavior.hyperparameters
    if hyper.adaptive_learning_rate != "off" and hyper.learning_rate_schedule == "linear":
        yield f"{name}: learning_rate_schedule has no effect; adaptive_learning_rate moves the rate"
    for key in ("team_change", "swap_steps"):
        if behavior.self_play is not None and key in behavior.self_play.model_fields_set:
            yield f"{name}: self_play.{key} has no effect; every game of appo draws its sides and its opponent"
    if "keep_checkpoints" in behavior.model_fields_set:
        yield f"{name}: keep_checkpoints has no effect; appo keeps its newest and its best policy"


def unsupported(run: RunFile) -> list[str]:
    """Valid ML-Agents settings that palus does not train yet, one sentence each; empty when the run can start."""
    lines = [line for name, behavior in run.behaviors.items() for line in _unsupported_in(name, behavior)]
    if not run.behaviors:
        lines.append(
            "behaviors: default_settings alone names nothing to train; add a behavior of the game, for example "
            "behaviors: {SoccerTwos: {}}"
        )
    if len(run.behaviors) > 1:
        lines.append(f"behaviors: {', '.join(run.behaviors)}: palus trains one behavior per run; keep one")
    if run.env_settings.env_path is not None:
        lines.append(
            f"env_settings.env_path {run.env_settings.env_path}: Unity executables cannot be trained in yet; "
            "remove it to use a built-in game"
        )
    elif run.env_id is None and run.behaviors:
        lines.append("palus.env: no game; set palus.env to a built-in game, for example SoccerTwos")
    for name, parameter in (run.environment_parameters or {}).items():
        lines += _unsupported_parameter(f"environment_parameters.{name}", parameter)
    lines += _unread(run)
    if run.checkpoint_settings.initialize_from is not None:
        lines.append("checkpoint_settings.initialize_from: starting from another run is not supported yet; remove it")
    if run.torch_settings.device not in (None, "cpu"):
        lines.append(f"torch_settings.device {run.torch_settings.device}: palus trains on the CPU; remove it")
    if run.checkpoint_settings.inference:
        lines.append("checkpoint_settings.inference: training only; use `palus match` to play a trained policy")
    return lines


def _unread(run: RunFile) -> Iterator[str]:
    """Settings of the game that its trainer does not hand on: the run would be another than the file says."""
    if run.is_sampled and run.environment_parameters:
        yield "environment_parameters: games of appo read none; use palus.env_options, or remove it"


def _unsupported_parameter(at: str, parameter: EnvironmentParameter) -> Iterator[str]:
    lessons = parameter.curriculum if isinstance(parameter, Curriculum) else ()
    values = [lesson.value for lesson in lessons] if lessons else [parameter]
    if not all(isinstance(value, float | ConstantSampler) for value in values):
        yield f"{at}: random values are not supported yet; use plain numbers"
    criteria = [lesson.completion_criteria for lesson in lessons[:-1]]
    if any(c is not None and c.measure == "reward" for c in criteria):
        yield f"{at}: lessons by reward are not supported yet; use measure: progress"


def _unsupported_in_appo(at: str, behavior: AppoBehavior) -> Iterator[str]:
    memory, encoder = behavior.network_settings.memory, behavior.network_settings.vis_encode_type
    if memory is not None and memory.sequence_length not in (None, behavior.time_horizon):
        yield f"{at}.network_settings.memory.sequence_length: appo's sequences are time_horizon long; remove it"
    if encoder in VISUAL_ENCODERS:
        yield f"{at}.network_settings.vis_encode_type {encoder}: not supported yet; use convnet_simple"
    if behavior.self_play is not None and behavior.population is not None:
        yield f"{at}: self_play and population do not go together yet; remove one of them"


def _unsupported_in(name: str, behavior: Behavior) -> Iterator[str]:
    at = f"behaviors.{name}"
    network = behavior.network_settings
    if isinstance(behavior, SacBehavior):
        yield f"{at}.trainer_type sac: not supported yet; use poca or ppo"
    if isinstance(behavior, AppoBehavior):
        yield from _unsupported_in_appo(at, behavior)
    elif network.memory is not None:
        yield f"{at}.network_settings.memory: recurrent networks need trainer_type appo; remove it"
    if network.deterministic:
        yield f"{at}.network_settings.deterministic: data is always collected with sampled actions; remove it"
    for signal in ("curiosity", "gail", "rnd"):
        if getattr(behavior.reward_signals, signal) is not None:
            yield f"{at}.reward_signals.{signal}: not supported yet; keep extrinsic alone"
    if behavior.reward_signals.extrinsic is None:
        yield f"{at}.reward_signals.extrinsic: training without it is not supported yet; add extrinsic: {{}}"
    if behavior.behavioral_cloning is not None:
        yield f"{at}.behavioral_cloning: imitation is not supported yet; remove it"
    if behavior.init_path is not None:
        yield f"{at}.init_path: starting from another checkpoint is not supported yet; remove it"
