"""Every kind of fault has its sentence, and no fault hides another."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palus.config import RunFile, load_run
from palus.config.load import _resolve, spell_sections
from palus.config.retired import retire_old_keys
from palus.config.source import Source
from palus.errors import ConfigError

HYPER = "run.yaml, behaviors.SoccerTwos.hyperparameters"


@pytest.mark.parametrize(
    ("hyperparameters", "message"),
    [
        ("batch_sise: 64", ".batch_sise: unknown key; did you mean batch_size?"),
        ("shared_critic: true", ".shared_critic: unknown key for trainer_type poca; only ppo and appo have it"),
        ("tau: 0.1", ".tau: unknown key for trainer_type poca; only sac has it"),
        ("batch_size: many", ".batch_size: expected a whole number, found 'many'"),
        ("batch_size: 64.5", ".batch_size: expected a whole number, found 64.5"),
        ("batch_size: true", ".batch_size: expected a whole number, found true"),
        ("batch_size: [64]", ".batch_size: expected a whole number, found a list"),
        ("batch_size: 0", ".batch_size: expected more than 0, found 0"),
        ("learning_rate:", ".learning_rate: expected a number, found nothing (null)"),
        ("learning_rate: .inf", ".learning_rate: expected a finite number, found inf"),
        ("beta: -1e-3", ".beta: expected at least 0, found '-1e-3'"),
        ("lambd: 1.5", ".lambd: expected at most 1, found 1.5"),
        (
            "learning_rate_schedule: linaer",
            ".learning_rate_schedule: expected one of constant, linear, found 'linaer'; did you mean linear?",
        ),
        (
            "batch_size: 20480, buffer_size: 2048",
            ": buffer_size 2048 is smaller than batch_size 20480; raise buffer_size to a multiple of batch_size",
        ),
    ],
)
def test_a_wrong_hyperparameter_is_named_with_what_was_found_and_expected(faults, hyperparameters, message) -> None:
    assert faults(f"behaviors: {{SoccerTwos: {{trainer_type: poca, hyperparameters: {{{hyperparameters}}}}}}}") == [
        HYPER + message
    ]


def test_several_trainers_that_have_a_key_are_told_as_a_list(faults) -> None:
    assert faults("behaviors: {SoccerTwos: {trainer_type: sac, hyperparameters: {epsilon: 0.1}}}") == [
        HYPER + ".epsilon: unknown key for trainer_type sac; only ppo, poca and appo have it"
    ]


@pytest.mark.parametrize(
    ("behavior", "message"),
    [
        ("hyperparameters: 5", ".hyperparameters: expected a map of keys, found 5"),
        ("max_step: 5", ".max_step: unknown key; did you mean max_steps?"),
        ("batch_size: 5", ".batch_size: unknown key; it belongs in hyperparameters"),
        ("self_play: {max_steps: 5}", ".self_play.max_steps: unknown key; it belongs in behaviors.SoccerTwos"),
        ("env_settings: {}", ".env_settings: unknown key; it belongs at the top of the file"),
        ("even_checkpoints: 3", ".even_checkpoints: expected true or false, found 3"),
        (
            "network_settings: {memory: {memory_size: 7}}",
            ".network_settings.memory: memory_size 7 is odd; one half of an lstm's memory is hidden state, the other "
            "cell state, so use for example 8",
        ),
        (
            "network_settings: {vis_encode_type: convnet}",
            ".network_settings.vis_encode_type: expected one of fully_connected, match3, simple, nature_cnn, resnet, "
            "convnet_simple, convnet_impala, convnet_atari, resnet_impala, resnet_strided, module:Class, found "
            "'convnet'; did you mean convnet_atari?",
        ),
        (
            "self_play: {play_against_current_self_ratio: 0.5}",
            ".self_play.play_against_current_self_ratio: unknown key; did you mean play_against_latest_model_ratio?",
        ),
        (
            "self_play: {play_against_latest_model_ratio: 2}",
            ".self_play.play_against_latest_model_ratio: expected at most 1, found 2",
        ),
        ("reward_signals: {gail: {}}", ".reward_signals.gail.demo_path: missing; this key is required"),
        ("reward_signals: {}", ".reward_signals: there is no reward to learn from; add extrinsic: {}"),
        (
            "network_settings: {hidden_units: 30}",
            ".network_settings: hidden_units 30 cannot be split over the 4 attention heads of poca's critic; "
            "use a multiple of 4, for example 32",
        ),
        (
            "network_settings: {memory: {sequence_length: 2000}}",
            ": network_settings.memory.sequence_length 2000 is greater than hyperparameters.batch_size 1024; "
            "a minibatch holds whole sequences, so raise batch_size",
        ),
        (
            "population: {perturb_min: 2}",
            ".population: perturb_min 2 is greater than perturb_max 1.5; exchange them",
        ),
        (
            "even_checkpoints: true, keep_checkpoints: 0",
            ": even_checkpoints divides max_steps by keep_checkpoints, which is 0; set keep_checkpoints to 1 or more",
        ),
    ],
)
def test_a_wrong_behavior_is_named_with_what_to_do(faults, behavior, message) -> None:
    text = f"behaviors: {{SoccerTwos: {{trainer_type: poca, {behavior}}}}}"
    assert faults(text) == ["run.yaml, behaviors.SoccerTwos" + message]


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("strong", ": expected a number, found 'strong'"),
        ("{}", ": expected a number, {sampler_type, sampler_parameters} or {curriculum: [lessons]}"),
        (
            "{sampler_type: unifrom, sampler_parameters: {}}",
            ": expected one of constant, uniform, gaussian, multirangeuniform, found 'unifrom'; did you mean uniform?",
        ),
        ("{sampler_type: uniform}", ".sampler_parameters: missing; this key is required"),
        (
            "{sampler_type: uniform, sampler_parameters: {min_value: 5}}",
            ".sampler_parameters: min_value 5.0 is greater than max_value 1.0; exchange them",
        ),
        (
            "{sampler_type: gaussian, sampler_parameters: {st_dev: -0.5}}",
            ".sampler_parameters.st_dev: expected at least 0, found -0.5",
        ),
        (
            "{sampler_type: multirangeuniform, sampler_parameters: {intervals: [[0, 1, 2]]}}",
            ".sampler_parameters.intervals.0: expected at most 2 items, found 3",
        ),
        ("{curriculum: []}", ".curriculum: expected at least 1 items, found 0"),
        (
            "{curriculum: [{name: easy, value: 1}, {name: hard, value: 2}]}",
            ".curriculum.0: lesson easy has no completion_criteria, so it would never end; all but the last need them",
        ),
        (
            "{curriculum: [{name: a, value: 1, completion_criteria: {behavior: A, measure: progress, threshold: 2}},"
            " {name: b, value: 2}]}",
            ".curriculum.0.completion_criteria: threshold 2 is not in [0, 1]; "
            "with measure progress it is a share of max_steps",
        ),
        (
            "{curriculum: [{name: a, value: 1, completion_criteria: {behavior: B}}, {name: b, value: 2}]}",
            ".curriculum.0.completion_criteria: behavior B is not in the file; it has A",
        ),
    ],
)
def test_a_wrong_environment_parameter_is_named(faults, parameter, message) -> None:
    text = f"{{behaviors: {{A: {{}}}}, environment_parameters: {{mass: {parameter}}}}}"
    assert faults(text) == ["run.yaml, environment_parameters.mass" + message]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "run.yaml: the file is empty; expected at least behaviors"),
        ("behaviors: &b {A: *b}", "run.yaml: line 1: the alias of this value is used inside it; write the value out"),
        ("- 1", "run.yaml: expected a map of sections, found a list"),
        ("root:x:0:0:" + "a" * 1500, f"run.yaml: expected a map of sections, found 'root:x:0:0:{'a' * 48}..."),
        (
            "behaviors: {A: {max_steps: 1:30}}",
            "run.yaml, behaviors.A.max_steps: expected a whole number, found '1:30'",
        ),
        (
            "behaviors: {A: {max_steps: 1:30.5}}",
            "run.yaml, behaviors.A.max_steps: expected a whole number, found '1:30.5'",
        ),
        ("\na: !!int 1:30", "run.yaml: line 2: 1:30 is no number of a run file; write it with at most 100 digits"),
        (
            "a: 0x" + 101 * "f",
            "run.yaml: line 1: 0xffffffffffffffffff is no number of a run file; write it with at most 100 digits",
        ),
        (
            "a: !!bool x",
            "run.yaml: not valid YAML: a value is not what its tag says (KeyError('x')); leave the tag out",
        ),
        (
            "a: !!float ''",
            "run.yaml: not valid YAML: a value is not what its tag says (IndexError('string index out of range')); "
            "leave the tag out",
        ),
        ("{}", "run.yaml, behaviors: there is nothing to train; add a behavior, for example SoccerTwos"),
        (
            "behaviors:\n  A: [1, 2",
            "run.yaml: line 2, column 11: not valid YAML: expected ',' or ']', but got '<stream end>'",
        ),
        (
            "behaviors:\n\tA: 1",
            "run.yaml: line 2, column 1: not valid YAML: found character '\\t' that cannot start any token",
        ),
        (
            "a: !!python/object:os.system 1",
            "run.yaml: line 1, column 4: not valid YAML: could not determine a constructor "
            "for the tag 'tag:yaml.org,2002:python/object:os.system'",
        ),
        (
            "behaviors: {A: {hyperparameters: {batch_size: 5}}}",
            "run.yaml, behaviors.A.trainer_type: missing; hyperparameters need it; "
            "expected one of ppo, poca, sac, appo",
        ),
        (
            "behaviors: {A: {trainer_type: pca}}",
            "run.yaml, behaviors.A.trainer_type: expected one of ppo, poca, sac, appo, found 'pca'; did you mean poca?",
        ),
        ("behaviors: {A: 3}", "run.yaml, behaviors.A: expected a map of keys, found 3"),
        (
            "{behaviors: {A: {}}, env_setings: {seed: 1}}",
            "run.yaml, env_setings: unknown key; did you mean env_settings?",
        ),
        (
            "{behaviors: {A: {}}, checkpoint_settings: {run_id: --check}}",
            "run.yaml, checkpoint_settings: run_id --check is an option, where a name was expected; "
            "give the name before it",
        ),
        (
            "{behaviors: {A: {}}, zzz: 1}",
            "run.yaml, zzz: unknown key; the keys here are default_settings, behaviors, "
            "env_settings, engine_settings, environment_parameters, checkpoint_settings, torch_settings, debug, palus",
        ),
        (
            "{behaviors: {A: {}}, palus: {matmul: fast}}",
            "run.yaml, palus.matmul: expected one of auto, highest, medium, bf16, int16, found 'fast'",
        ),
        (
            "{behaviors: {A: {}}, palus: {sampling: {asynchronous: ture}}}",
            "run.yaml, palus.sampling.asynchronous: expected one of auto, true, false, found 'ture'; "
            "did you mean true?",
        ),
    ],
)
def test_a_wrong_file_is_explained(faults, text, message) -> None:
    assert faults(text) == [message]


def test_repeated_and_unnamed_keys_are_reported_with_their_lines(faults) -> None:
    text = """\
        behaviors:
          A:
            max_steps: 1
            max_steps: 2
          7: {}
        debug: true
        debug: false
    """
    assert faults(text) == [
        "run.yaml: line 4: max_steps is given twice, first in line 3; keep one",
        "run.yaml: line 5: the key 7 is not text; put it in quotes",
        "run.yaml: line 7: debug is given twice, first in line 6; keep one",
    ]


def test_all_faults_of_a_file_and_its_overrides_come_together(faults) -> None:
    text = """
        behaviours:
          SoccerTwos:
            trainer_typ: poca
            hyperparameters: {batch_sise: 4096, buffer_size: 2048, lambd: 1.5}
            network_settings: {hidden_units: 30, vis_encode_type: fancy}
            reward_signals: {gail: {}}
        environment_parameters:
          mass: {sampler_type: multirangeuniform, sampler_parameters: {intervals: [[1, 0], [1, 2, 3]]}}
    """
    overrides = ["palus.threads=-1", "max_steps", "env_settings.seed=[1"]
    assert faults(text, overrides) == [
        "override, max_steps: expected dotted.path=value",
        "override, env_settings.seed: line 1, column 3: not valid YAML: expected ',' or ']', but got '<stream end>'",
        "run.yaml, behaviours: unknown key; did you mean behaviors?",
        HYPER + ".lambd: expected at most 1, found 1.5",
        HYPER + ".batch_sise: unknown key; did you mean batch_size?",
        "run.yaml, behaviors.SoccerTwos.network_settings.vis_encode_type: "
        "expected one of fully_connected, match3, simple, nature_cnn, resnet, convnet_simple, convnet_impala, "
        "convnet_atari, resnet_impala, resnet_strided, module:Class, found 'fancy'",
        "run.yaml, behaviors.SoccerTwos.reward_signals.gail.demo_path: missing; this key is required",
        "run.yaml, behaviors.SoccerTwos.trainer_typ: unknown key; did you mean trainer_type?",
        "run.yaml, environment_parameters.mass.sampler_parameters.intervals.0: 1.0 is greater than 0.0; exchange them",
        "run.yaml, environment_parameters.mass.sampler_parameters.intervals.1: expected at most 2 items, found 3",
        "override, palus.threads: expected at least 0, found -1",
        HYPER + ": buffer_size 2048 is smaller than batch_size 4096; raise buffer_size to a multiple of batch_size",
        "run.yaml, behaviors.SoccerTwos.network_settings: hidden_units 30 cannot be split over the 4 attention heads "
        "of poca's critic; use a multiple of 4, for example 32",
    ]


def test_a_section_that_only_an_override_has_is_the_override_s(faults) -> None:
    text = "behaviors: {SoccerTwos: {trainer_type: poca, network_settings: {memory: {}}, reward_signals: }}"
    overrides = [
        "behavior.SoccerTwos.max_steps=1",
        "behaviors.SoccerTwos.hyperparameters.batch_size=99999",
        "behaviors.SoccerTwos.network_settings.memory.memory_size=7",
        "behaviors.SoccerTwos.reward_signals.gail.strength=1",
    ]
    assert {fault.split(": ")[0] for fault in faults(text, overrides)} == {
        "override, behavior",
        "override, behaviors.SoccerTwos.hyperparameters",
        "override, behaviors.SoccerTwos.reward_signals.gail.demo_path",
        "run.yaml, behaviors.SoccerTwos.network_settings.memory",
    }


def test_no_rule_judges_a_value_that_is_itself_a_fault(faults) -> None:
    # With the default batch_size of 1024 in place of the bad one, buffer_size 512 would look too small.
    text = "behaviors: {SoccerTwos: {trainer_type: poca, hyperparameters: {batch_size: x, buffer_size: 512}}}"
    assert faults(text) == [HYPER + ".batch_size: expected a whole number, found 'x'"]


def test_what_a_judge_says_of_what_stands_in_for_a_fault_is_left_out() -> None:
    said = ["behaviors.A.max_steps 500000: too many", "palus.env Nowhere: no such game"]
    with pytest.raises(ConfigError) as caught:
        load_run(Source("run.yaml", "behaviors: {A: {max_steps: x}}"), ["palus.env=Nowhere"], judge=lambda run: said)
    assert caught.value.faults == [
        "run.yaml, behaviors.A.max_steps: expected a whole number, found 'x'", f"override, {said[1]}"
    ]  # fmt: skip


def test_a_fault_of_the_default_settings_is_not_repeated_for_every_behavior(faults) -> None:
    text = """
        default_settings: {trainer_type: ppo, max_step: 3, hyperparameters: {epsilon: no}}
        behaviors: {A: {}, B: {trainer_type: poca}}
    """
    assert faults(text) == [
        "run.yaml, default_settings.hyperparameters.epsilon: expected a number, found false",
        "run.yaml, default_settings.max_step: unknown key; did you mean max_steps?",
    ]
    assert faults(
        "{default_settings: {trainer_type: ppo, hyperparameters: 5}, behaviors: {B: {trainer_type: poca}}}"
    ) == ["run.yaml, default_settings.hyperparameters: expected a map of keys, found 5"]


def test_overrides_that_hit_nothing_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        load_run("debug", ["behaviors.SoccerTwo.max_steps=5", "behaviors.SoccerTwos.max_steps.x=3", "=4"])
    assert caught.value.faults == [
        "override, behaviors.SoccerTwo.max_steps: no behavior SoccerTwo; the file has SoccerTwos",
        "override, behaviors.SoccerTwos.max_steps.x: behaviors.SoccerTwos.max_steps is 12000, not a section; "
        "set it as a whole",
        "override, =4: expected dotted.path=value",
    ]


def test_a_missing_file_is_answered_with_near_names(tmp_path: Path) -> None:
    (tmp_path / "SoccerTwos.yaml").write_text("")
    with pytest.raises(ConfigError) as caught:
        load_run(tmp_path / "SocerTwos.yaml")
    expected = f"{tmp_path / 'SocerTwos.yaml'}: no such file; did you mean {tmp_path / 'SoccerTwos.yaml'}?"
    assert str(caught.value) == expected
    for name in ("big", "ppo", "wide"):
        (tmp_path / f"{name}.yaml").write_text("")
    with pytest.raises(ConfigError, match=r"nix\.yaml: no such file$"):
        load_run(tmp_path / "nix.yaml")
    with pytest.raises(ConfigError, match=r"debg\.yaml: no such file; did you mean debug\?$"):
        load_run(tmp_path / "debg.yaml")
    with pytest.raises(ConfigError, match=r"^debg: no such file or preset; did you mean debug\? presets: debug, "):
        load_run("debg")
    with pytest.raises(ConfigError, match=r"^zzz: no such file or preset; presets: debug, "):
        load_run("zzz")


def test_folders_and_binary_files_are_no_run_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="found a folder, expected a YAML file or a preset"):
        load_run(tmp_path)
    (tmp_path / "configuration.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"found a run folder, expected a YAML file; use .*configuration\.yaml"):
        load_run(tmp_path)
    with pytest.raises(ConfigError, match=r"configuration\.yaml: not UTF-8 \(invalid start byte at byte 0\); save"):
        load_run(tmp_path / "configuration.yaml")


SECTIONS = ["behaviors", "default_settings", "hyperparameters", "self_play", "reward_signals", "gail", "palus"]
KEYS = st.sampled_from(
    [*SECTIONS, "environment_parameters", "sampler_type", "curriculum", "trainer_type", "batch_size", "save_steps", "x"]
)
VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, -1, 2.5, "poca", "ppo", "sac", "uniform", "x", "", "1e3"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(tree=st.dictionaries(KEYS, VALUES, max_size=5), behavior=st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_tree_ends_in_a_run_or_in_faults(tree, behavior) -> None:
    tree = {"behaviors": {"A": behavior}, **tree}
    tree, misspelt = spell_sections(tree)
    tree, _ = retire_old_keys(tree)
    run, faults = _resolve(tree)
    assert isinstance(run, RunFile) or faults
    assert all(fault.sentence("run.yaml") for fault in misspelt + faults)


@pytest.mark.parametrize(
    "text",
    [
        "behaviors: {A: {trainer_type: ppo, hyperparameters: {batch_size: 512, buffer_size: 512}}}",
        "behaviors: {A: {network_settings: {memory: {sequence_length: 1024}}}}",
        "behaviors: {A: {network_settings: {memory: {kind: gru, memory_size: 7}}}}",
        "{behaviors: {A: {}}, environment_parameters: {p: {curriculum: ["
        "{name: a, value: 1, completion_criteria: {behavior: A, measure: progress, threshold: 0}},"
        "{name: b, value: 2, completion_criteria: {behavior: A, measure: progress, threshold: 1}},"
        "{name: c, value: 3, completion_criteria: {behavior: A, measure: reward, threshold: 9}},"
        "{name: d, value: 4}]}}}",
        "{default_settings: {trainer_type: ppo}, environment_parameters: {p: {curriculum: ["
        "{name: a, value: 1, completion_criteria: {behavior: Later}}, {name: b, value: 2}]}}}",
        "{default_settings: {trainer_type: ppo}, palus: {trainers: {Later: 'own:Trainer'}}}",
    ],
)
def test_what_just_fits_or_is_known_when_it_runs_is_no_fault(load, text) -> None:
    load(text)


def test_a_buffer_smaller_than_a_minibatch_of_appo_is_one_fault(faults) -> None:
    hyper = "{buffer_size: 512, batch_size: 1024}"
    (found,) = faults(f"behaviors: {{A: {{trainer_type: appo, hyperparameters: {hyper}}}}}")
    assert "buffer_size 512 is smaller than batch_size 1024" in found


def test_keys_of_a_trainer_that_nobody_named_are_judged_by_the_one_that_knows_most(faults) -> None:
    text = "behaviors: {A: {hyperparameters: {tau: 0.1, init_entcoef: 0.5, batch_size: 0}}}"
    assert [fault.split(": ", 1)[0] for fault in faults(text)] == [
        "run.yaml, behaviors.A.trainer_type", "run.yaml, behaviors.A.hyperparameters.batch_size"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "time_horizon: 30",
            "hyperparameters.batch_size 1024 is not a multiple of time_horizon 30; rollouts are whole rows, "
            "so use for example 1050",
        ),
        (
            "hyperparameters: {advantages: vtrace}",
            "advantages vtrace cannot be combined with normalize_returns; set normalize_returns to false",
        ),
    ],
)
def test_numbers_of_appo_that_do_not_fit_together_are_explained(faults, settings, message) -> None:
    found = faults(f"behaviors: {{A: {{trainer_type: appo, {settings}}}}}")
    assert any(message in fault for fault in found), found
