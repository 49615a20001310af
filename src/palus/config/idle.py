"""Keys that mean nothing beside the values of others, or in the game of the run; each with the reason.

What a trainer or a kind of game never reads is in `palus.config.unread`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from palus.config.run_file import RunFile
from palus.config.section import Section
from palus.config.trainer import AppoBehavior, Behavior, SacBehavior, SacHyperparameters
from palus.config.unread import IN_PROCESS, IN_WORKERS, KnownGame, kinds_of, written

OF_ADAPTIVE = ("target_kl", "min_learning_rate", "max_learning_rate")
OF_IMAGES = ("vis_encode_type", "image_layers", "image_units", "image_scale")
OF_NUMBERS = ("adaptive_deviation", "initial_deviation", "range_end", "tanh_scale", "squash")
OF_BASELINES = ("baselines", "baseline_interval", "baseline_pairs")


def idle(run: RunFile, game: KnownGame | None) -> dict[str, str]:
    """Path -> why it has no effect, of keys that are written. game: None where it was not asked."""
    found: dict[str, str] = {}
    for name, behavior in run.behaviors.items():
        at = f"behaviors.{name}"
        for path, why in (*_in_behavior(at, behavior, run), *_in_game(at, name, behavior, game)):
            found.setdefault(path, why)
    if not run.talks:
        for path, why in (*_of_rollouts(run, game), *_of_sampling(run, game), *_of_baselines(run, game)):
            found.setdefault(path, why)
    if game is not None and not game.with_images:
        found |= dict(_each("palus", run.palus, ("acting",), "the agents see no images"))
    return found


def _each(at: str, section: Section, keys: Iterable[str], why: str) -> Iterator[tuple[str, str]]:
    for key in keys:
        yield from ((f"{at}.{key}", why) for _ in written(section, key))


def _in_behavior(at: str, behavior: Behavior, run: RunFile) -> Iterator[tuple[str, str]]:
    hyper, network, signals = behavior.hyperparameters, behavior.network_settings, behavior.reward_signals
    if isinstance(behavior, AppoBehavior):
        own, section = behavior.hyperparameters, f"{at}.hyperparameters"
        if own.adaptive_learning_rate == "off":
            yield from _each(section, own, OF_ADAPTIVE, "adaptive_learning_rate is off")
        else:
            yield from _each(section, own, ("learning_rate_schedule",), "adaptive_learning_rate moves the rate")
        if own.advantages == "gae":
            yield from _each(section, own, ("vtrace_rho", "vtrace_c"), "advantages is gae")
    taught = isinstance(hyper, SacHyperparameters) and hyper.reward_signal_steps_per_update != hyper.steps_per_update
    if taught and not (signals.curiosity or signals.gail or signals.rnd):
        path = f"{at}.hyperparameters.reward_signal_steps_per_update"
        yield path, "the game's own reward learns nothing"
    of_network = {
        "normalize_names": "normalize is off" if not network.normalize else "",
        "image_units": "image_layers is 0" if not network.image_layers else "",
        "initial_deviation": "the network gives it, by adaptive_deviation" if network.adaptive_deviation else "",
        "range_end": "squash stretches to the range" if network.squash else "",
    }
    for key, why in of_network.items():
        if why:
            yield from _each(f"{at}.network_settings", network, (key,), why)
    if behavior.self_play is not None and run.palus.league.learn == "all_teams":
        yield from _each(f"{at}.self_play", behavior.self_play, ("team_change",), "palus.league.learn is all_teams")


def _in_game(at: str, name: str, behavior: Behavior, game: KnownGame | None) -> Iterator[tuple[str, str]]:
    """By what its agents see and do."""
    if game is None:
        return
    if not game.with_images & {name, ""}:
        why = "the agents see no images"
        yield from _each(f"{at}.network_settings", behavior.network_settings, OF_IMAGES, why)
        for signal in ("curiosity", "gail", "rnd"):
            yield from _each(at, behavior, (f"reward_signals.{signal}.network_settings.vis_encode_type",), why)
    if not game.with_numbers & {name, ""}:
        why = "the agents have no continuous actions"
        yield from _each(f"{at}.network_settings", behavior.network_settings, OF_NUMBERS, why)


def _of_rollouts(run: RunFile, game: KnownGame | None) -> Iterator[tuple[str, str]]:
    """All behaviors of a game of palus have rollouts as long as the first one asks for."""
    if not run.behaviors:
        return
    (name, first), *others = run.behaviors.items()
    in_process, in_workers = (kinds_of(run, game) == kind for kind in (IN_PROCESS, IN_WORKERS))
    by_decisions = isinstance(first, SacBehavior)
    if in_workers and not by_decisions:
        why = f"in worker processes buffer_size and time_horizon of {name} say how many"
        yield from _each("palus", run.palus, ("num_matches",), why)
    if in_process and run.palus.num_matches and not by_decisions and not _cuts_sequences(first):
        why = "palus.num_matches and buffer_size say how long rollouts are"
        yield from _each(f"behaviors.{name}", first, ("time_horizon",), why)
    why = f"all rollouts are as long as {name} asks for"
    for other, behavior in others:
        at = f"behaviors.{other}"
        if not isinstance(behavior, SacBehavior):
            yield from _each(at, behavior, ("hyperparameters.buffer_size",), why)
        if not _cuts_sequences(behavior):
            yield from _each(at, behavior, ("time_horizon",), why)


def _cuts_sequences(behavior: Behavior) -> bool:
    """Whether `time_horizon` is also how long the sequences are that it learns from out of other data than rollouts."""
    memory = behavior.network_settings.memory
    stored = isinstance(behavior, SacBehavior) or behavior.behavioral_cloning is not None
    return stored and memory is not None and memory.sequence_length is None


def _of_sampling(run: RunFile, game: KnownGame | None) -> Iterator[tuple[str, str]]:
    sampling = run.palus.sampling
    if kinds_of(run, game) == IN_PROCESS:  # none of them is read, which `unread` says
        return
    if not sampling.workers:
        keys = ("splits", "affinity", "timeout", "max_restarts")
        yield from _each("palus.sampling", sampling, keys, "palus.sampling.workers is 0")


def _of_baselines(run: RunFile, game: KnownGame | None) -> Iterator[tuple[str, str]]:
    palus = run.palus
    opponents = palus.baselines if palus.baselines is not None or game is None else game.yardsticks
    if game is not None and game.yardsticks is None:
        yield from _each("palus", palus, OF_BASELINES, f"no arena ranks {run.env_id}, so it has no baselines to meet")
    elif not palus.baseline_interval:
        yield from _each("palus", palus, ("baselines", "baseline_pairs"), "palus.baseline_interval is 0")
    elif opponents == ():
        why = "palus.baselines is empty" if palus.baselines == () else f"{run.env_id} declares no baselines; name some"
        yield from _each("palus", palus, ("baseline_interval", "baseline_pairs"), why)
