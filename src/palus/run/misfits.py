"""What only the game can say about a valid run file: whether it has the behavior, takes the options, has the sides,
needs the keys; and other files: whether the executable is there, and what demonstrations show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from palus.arena.models.players import Bot, load_player
from palus.config import AppoBehavior, Behavior, RunFile, unsupported
from palus.config.faults import near_name
from palus.config.run_file import EDITOR
from palus.config.unread import KnownGame
from palus.envs import GameSource, arena_games
from palus.envs.drawing import draw
from palus.envs.protocol import MultiAgentEnv
from palus.errors import ConfigError, DemonstrationError, EnvError, ModelError, TrustError
from palus.rollout.plan import OUT_OF_SIGHT, in_workers, plan_matches, plan_workers, rows_per_match, worker_games
from palus.run.members import find_guests
from palus.trust import NOBODY, Trust
from palus.types import BehaviorSpec, GameSpec
from palus.unity.demonstrations import demonstrated, read_demonstrations
from palus.unity.executable import find_executable


def misfits(run: RunFile, trust: Trust = NOBODY, *, whole: bool = False) -> list[str]:
    """Why a run that is written correctly would die at its start, one sentence each.

    whole: read demonstrations to their ends, as the start does later; else their beginnings.
    Makes one instance of the game, as the start does. Loads no torch, but where a device is named. Raises TrustError
    when the game, or the program that it is, is not trusted.
    """
    env_id = run.env_id
    if env_id is None:
        return [*unsupported(run), *_of_device(run), *_of_executable(run, trust), *_of_demonstrations(run, {}, whole)]
    try:
        source = GameSource(env_id, run.palus.env_options, trust)
        env, faults = _made(source)
    except EnvError as error:
        return [*unsupported(run), f"palus.env: {error}"]
    try:
        run = run.completed(behavior.name for behavior in env.spec.behaviors)
        faults = [*unsupported(run), *_of_device(run), *faults]
        if not run.behaviors:
            return faults
        by_workers = in_workers(run.palus.sampling, source)
        faults += [*_of_game(run, env_id, env.spec), *_of_matches(run, env), *_of_members(run, env.spec, by_workers)]
        faults += _of_demonstrations(run, {behavior.name: behavior for behavior in env.spec.behaviors}, whole)
        return [*faults, *_of_workers(run, env.spec)] if by_workers else faults
    finally:
        env.close()


def completed(run: RunFile, trust: Trust = NOBODY) -> RunFile:
    """The run with `default_settings` for those of its game's behaviors that it leaves out. As it is where the game
    talks: its behaviors are known when they appear."""
    if run.default_settings is None or run.env_id is None:
        return run
    spec = GameSource(run.env_id, run.palus.env_options, trust).spec
    return run.completed(behavior.name for behavior in spec.behaviors)


def known_game(run: RunFile, source: GameSource | None, spec: GameSpec) -> KnownGame:
    """What the game of a run says of its keys. source: None of one that talks."""
    arena = arena_games().get(run.env_id or "")
    by_workers = source is not None and in_workers(run.palus.sampling, source)
    return KnownGame(
        in_workers=by_workers,
        yardsticks=None if arena is None else arena.yardsticks,
        with_images=frozenset(b.name for b in spec.behaviors if any(o.is_image for o in b.observations)),
        with_numbers=frozenset(b.name for b in spec.behaviors if not b.actions.is_discrete),
        rows={} if source is None or by_workers else _rows(run, spec),
    )


def _rows(run: RunFile, spec: GameSpec) -> dict[str, tuple[int, int]]:
    """Behavior of appo -> rows of a rollout that is stepped in this process, and the decisions of each."""
    agents = {name: len(spec.agents_of(name) or spec.agents_of("")) for name in run.behaviors}
    first = next(iter(run.behaviors.values()), None)
    if not isinstance(first, AppoBehavior) or not all(agents.values()):
        return {}
    matches, decisions = plan_matches(run, next(iter(agents.values())))
    return {n: (matches * agents[n], decisions) for n, b in run.behaviors.items() if isinstance(b, AppoBehavior)}


def _of_executable(run: RunFile, trust: Trust) -> Iterator[str]:
    path = run.env_settings.env_path
    if path is None or path == EDITOR:
        return
    trust.check_program(path)
    try:
        find_executable(path)
    except EnvError as error:
        yield f"env_settings.{error}"


def _of_demonstrations(run: RunFile, specs: Mapping[str, BehaviorSpec], whole: bool) -> Iterator[str]:
    """specs: of the game, by behavior; where it is not known yet, demonstrations have to fit each other."""
    for name, behavior in run.behaviors.items():
        if isinstance(behavior, AppoBehavior):  # it does not imitate
            continue
        spec = specs.get(name, specs.get(""))
        cloned, imitated = behavior.behavioral_cloning, behavior.reward_signals.gail
        for key, settings in (("behavioral_cloning", cloned), ("reward_signals.gail", imitated)):
            if settings is None:
                continue
            try:
                spec = demonstrated(Path(settings.demo_path), spec)
                if whole:
                    read_demonstrations(Path(settings.demo_path), spec)
            except DemonstrationError as error:
                yield f"behaviors.{name}.{key}.demo_path: {error}"


def _of_device(run: RunFile) -> Iterator[str]:
    """What torch says of the device."""
    if run.torch_settings.device in (None, "cpu"):
        return
    from palus.nn.place import place_of

    try:
        place_of(run.torch_settings.device)
    except ConfigError as error:
        yield str(error)


def _made(source: GameSource) -> tuple[MultiAgentEnv, list[str]]:
    """The game and what it has against its options: without them it can still be asked about the rest."""
    try:
        return source.batch(1), []
    except EnvError as error:
        try:
            return GameSource(source.env_id, {}, source.trust).batch(1), [f"palus.env_options: {error}"]
        except (EnvError, TrustError):
            raise error from None


def _of_game(run: RunFile, env_id: str, spec: GameSpec) -> Iterator[str]:
    """What any game can say: who plays in it, and how many sides it has."""
    known = [behavior.name for behavior in spec.behaviors]
    for name, behavior in run.behaviors.items():
        if name not in known and "" not in known:
            near = near_name(name, known)
            hint = (
                f"did you mean {near}?" if near else f"rename it to {' or '.join(known)}, or set palus.env to its game"
            )
            yield f"behaviors.{name}: {env_id} has no behavior of that name; {hint}"
        if behavior.self_play is not None and len(spec.sides) < 2:
            yield f"behaviors.{name}.self_play: {env_id} has one side only; remove self_play, or train in another game"
        loss = behavior.hyperparameters.exploration_loss if isinstance(behavior, AppoBehavior) else ""
        if loss == "symmetric_kl" and not all(b.actions.is_discrete for b in spec.behaviors):
            key = f"behaviors.{name}.hyperparameters.exploration_loss symmetric_kl"
            yield f"{key}: {env_id} has continuous actions; use entropy"
        if behavior.network_settings.normalize:
            yield from _of_normalized(f"behaviors.{name}.network_settings", behavior, spec)
    missing = [name for name in known if name and name not in run.behaviors]
    if len(known) > 1 and missing:
        yield f"behaviors: {env_id} has {' and '.join(known)}; add {' and '.join(missing)}"
    if run.default_settings is not None:  # else the file alone says whom it has
        yield from _of_names(run, env_id)


def _of_normalized(at: str, behavior: Behavior, spec: GameSpec) -> Iterator[str]:
    """Observations to be normalised that nobody in the game sees: these settings may stand for several behaviors."""
    seen = list(dict.fromkeys(o.name for own in spec.behaviors for o in own.observations))
    for name in behavior.network_settings.normalize_names or ():
        if name not in seen:
            near = near_name(name, seen)
            hint = f"did you mean {near}?" if near else f"it has {', '.join(seen)}"
            yield f"{at}.normalize_names: {spec.env_id} has no observation {name}; {hint}"


def _of_names(run: RunFile, env_id: str) -> Iterator[str]:
    """Behaviors that are named beside their settings: a lesson that waits for one that there is not would never end."""
    named = [("palus.trainers", name) for name in run.palus.trainers]
    for parameter, lessons in run.lessons().items():
        waited_for = (lesson.completion_criteria.behavior for lesson in lessons if lesson.completion_criteria)
        named += [(f"environment_parameters.{parameter}.curriculum", name) for name in dict.fromkeys(waited_for)]
    for path, name in named:
        if name not in run.behaviors:
            near = near_name(name, run.behaviors)
            hint = f"did you mean {near}?" if near else f"it has {' and '.join(run.behaviors)}"
            yield f"{path}: {env_id} has no behavior {name}; {hint}"


def _of_matches(run: RunFile, env: MultiAgentEnv) -> Iterator[str]:
    try:
        env.set_parameters({name: draw(lessons[0].value) for name, lessons in run.lessons().items()})
    except EnvError as error:
        yield f"environment_parameters: {error}"
    for baseline in baselines_of(run):
        try:
            load_player(baseline, env.spec)
        except ModelError as error:
            yield f"palus.baselines: {error}"


def _of_members(run: RunFile, spec: GameSpec, by_workers: bool) -> Iterator[str]:
    if run.palus.league.opponents == "members" and not run.palus.league.members:
        yield "palus.league.opponents members: there are none to meet; name them in palus.league.members"
    if run.palus.league.members and not any(behavior.self_play for behavior in run.behaviors.values()):
        yield "palus.league.members: nobody plays against them; give a behavior self_play, or remove them"
    for name in run.palus.league.members:
        try:
            guests = find_guests([name], spec)
        except ModelError as error:
            yield f"palus.league.members: {error}"
            continue
        if by_workers and any(isinstance(guest.player, Bot) for guest in guests):
            yield OUT_OF_SIGHT


def baselines_of(run: RunFile) -> tuple[str, ...]:
    """The fixed opponents of a run: those of its file, else those that its game declares; none outside of arenas."""
    game = arena_games().get(run.env_id or "")
    if game is None or not run.palus.baseline_interval:
        return ()
    return game.yardsticks if run.palus.baselines is None else run.palus.baselines


def _of_workers(run: RunFile, spec: GameSpec) -> Iterator[str]:
    for name, behavior in run.behaviors.items():
        groups = [spec.agents[i].group for i in spec.agents_of(name) or spec.agents_of("")]
        sizes = sorted({groups.count(group) for group in groups})
        if behavior.learns_from_groups and len(sizes) > 1:
            yield (
                f"behaviors.{name}.trainer_type {behavior.trainer_type}: groups of {' and '.join(map(str, sizes))} "
                "agents, which worker processes cannot keep together; set palus.sampling.collector to in_process"
            )
    name, behavior = next(iter(run.behaviors.items()))
    past, all_teams = behavior.self_play is not None, run.palus.league.learn == "all_teams"
    kind = name if spec.agents_of(name) else ""
    learning = rows_per_match(spec, kind, past=past, mirrors=behavior.mirrors, all_teams=all_teams)
    if not learning:  # it is none of the game's, as was said
        return
    try:
        plan_workers(run.palus.sampling, worker_games(run, learning) * spec.num_agents, spec.num_agents)
    except ConfigError as error:
        yield f"behaviors.{name}: {error}"
