"""What a valid run file is worth saying about: derived values with their reasons, and what palus cannot train yet."""

from __future__ import annotations

from collections.abc import Iterator

from palus.config.environment import ConstantSampler, Curriculum, EnvironmentParameter
from palus.config.idle import idle
from palus.config.league import LeagueSettings, Roles
from palus.config.population import Population
from palus.config.run_file import RunFile
from palus.config.trainer import AppoBehavior, Behavior, OnPolicyHyperparameters
from palus.config.unread import KnownGame, kinds_of, unread


def notes(run: RunFile, game: KnownGame | None = None) -> list[str]:
    """Values that the file did not write but implies, each with its reason, and keys that have no effect.

    game: what it says itself; None where it was not asked, which leaves out what only it can say.
    """
    games = kinds_of(run, game)
    lines = [line for name, behavior in run.behaviors.items() for line in _behavior_notes(name, behavior)]
    if run.palus.env is None and run.env_id is not None:
        lines.append(f"palus.env {run.env_id}: the behaviors are that game's, and there is no env_settings.env_path")
    lines += [f"{path} has no effect; {why}" for path, _, why in unread(run, games, refused=False)]
    lines += [f"{path} has no effect; {why}" for path, why in idle(run, game).items()]
    if game is not None:
        lines += _row_notes(run, game)
    lines += _league_notes(run)
    for name, parameter in (run.environment_parameters or {}).items():
        lines += _parameter_notes(f"environment_parameters.{name}", parameter)
    return lines


def _row_notes(run: RunFile, game: KnownGame) -> Iterator[str]:
    """Minibatches that would be less than a row."""
    for name, (rows, decisions) in game.rows.items():
        size = run.behaviors[name].hyperparameters.batch_size
        if decisions > size:
            yield (
                f"{name}: batch_size {size} has no effect; minibatches of appo are whole rows, and a rollout is "
                f"{rows} rows of {decisions} decisions, so they have {decisions}; raise palus.num_matches or batch_size"
            )


def _league_notes(run: RunFile) -> Iterator[str]:
    """Keys of `palus.league`, and of `self_play` because of it, that mean nothing beside the others of the file."""
    league, plain = run.palus.league, LeagueSettings()
    written = [key for key in LeagueSettings.model_fields if getattr(league, key) != getattr(plain, key)]
    playing = {name: behavior.self_play for name, behavior in run.behaviors.items() if behavior.self_play is not None}
    if not playing:
        yield from (f"palus.league.{key} has no effect; no behavior has self_play" for key in written)
        return
    if "delta" in written and league.opponents != "history":
        yield f"palus.league.delta has no effect; opponents is {league.opponents}, and delta is about history"
    reference = league.counting == "reference"
    for key in ("change_every", "change_unit") if reference else ():
        if key in written:
            yield f"palus.league.{key} has no effect; counting is reference, which changes opponents by swap_steps"
    if league.opponents.startswith("psro") and league.evaluation_share == 0.0:
        yield "palus.league.evaluation_share 0: past selves that never meet count as even, so all are met alike"
    interval = "change_every" if league.change_every is not None else "change_unit"
    own_interval = not reference and (league.change_every is not None or league.change_unit == "episode")
    for name, play in playing.items():
        if own_interval and "swap_steps" in play.model_fields_set:
            yield f"behaviors.{name}.self_play.swap_steps has no effect; palus.league.{interval} stands above it"
        if league.opponents == "history" and "play_against_latest_model_ratio" in play.model_fields_set:
            yield (
                f"behaviors.{name}.self_play.play_against_latest_model_ratio has no effect; palus.league.opponents is "
                "history, in which the latest policy is one version of many"
            )


def _parameter_notes(at: str, parameter: EnvironmentParameter) -> Iterator[str]:
    """Keys of a parameter that mean nothing."""
    lessons = parameter.curriculum if isinstance(parameter, Curriculum) else ()
    for value in (parameter, *(lesson.value for lesson in lessons)):
        if isinstance(value, ConstantSampler) and value.sampler_parameters.seed != -1:
            yield f"{at}: seed of a constant has no effect"
    for lesson in lessons:
        criteria = lesson.completion_criteria
        if criteria is None:
            continue
        if lesson is lessons[-1]:
            yield f"{at}: completion_criteria of the last lesson {lesson.name} have no effect"
        elif criteria.measure == "progress" and not criteria.signal_smoothing:
            yield f"{at}: signal_smoothing of lesson {lesson.name} has no effect; it is about measure: reward"


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
    if behavior.even_checkpoints:
        yield (
            f"{name}: checkpoint_interval {behavior.checkpoint_interval} = max_steps {behavior.max_steps} / "
            f"keep_checkpoints {behavior.keep_checkpoints} (even_checkpoints)"
        )
    if play is not None and "team_change" not in play.model_fields_set:
        yield f"{name}: team_change {play.team_change} = 5 x save_steps"
    if behavior.population is not None:
        yield from _population_notes(name, behavior, behavior.population)
    if behavior.reward_signals.extrinsic is None:
        yield f"{name}: reward_signals has no extrinsic, so the game's own reward is left out"


def _population_notes(name: str, behavior: Behavior, population: Population) -> Iterator[str]:
    if population.start >= behavior.max_steps or population.period >= behavior.max_steps:
        yield (
            f"{name}: its population never changes; population.start {population.start} or period {population.period} "
            f"is not below max_steps {behavior.max_steps}"
        )
    if behavior.self_play is not None and "mix_in_game" in population.model_fields_set:
        yield f"behaviors.{name}.population.mix_in_game has no effect; in self-play a team follows one policy"


def unsupported(run: RunFile) -> list[str]:
    """Valid ML-Agents settings that palus does not train yet, one sentence each; empty when the run can start."""
    lines = [
        f"behaviors.{name}.reward_signals.extrinsic: appo learns from it alone; add extrinsic: {{}}"
        for name, behavior in run.behaviors.items()
        if isinstance(behavior, AppoBehavior) and behavior.reward_signals.extrinsic is None
    ]
    lines += _unsupported_learners(run)
    if not run.behaviors and not run.talks:
        lines.append(
            "behaviors: default_settings alone names nothing to train; add a behavior of the game, for example "
            "behaviors: {SoccerTwos: {}}"
        )
    for path, value, why in unread(run, kinds_of(run, None), refused=True):
        lines.append(f"{path} {value}: {why}" if isinstance(value, str) else f"{path}: {why}")
    if run.env_id is None and run.behaviors and not run.talks:
        lines.append(
            "palus.env: no game; set palus.env to a built-in game, for example SoccerTwos, or name a Unity "
            "executable on the command line: --env PATH, or --env UnityEditor"
        )
    return lines


def _unsupported_learners(run: RunFile) -> Iterator[str]:
    """Several learners of a behavior where there can be one way to have them, or one learner."""
    roles, reference = run.palus.league.roles, run.palus.league.counting == "reference"
    for name, behavior in run.behaviors.items():
        if behavior.self_play is None:
            continue
        if behavior.population is not None and roles != Roles():
            yield f"behaviors.{name}.population: palus.league.roles names the learners already; remove one of the two"
        if reference and (behavior.population is not None or roles != Roles()):
            section = "palus.league.roles" if behavior.population is None else f"behaviors.{name}.population"
            yield f"palus.league.counting reference: ML-Agents has one learner of a behavior; remove it or {section}"
