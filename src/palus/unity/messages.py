"""The messages of communicator 1.5.0: their fields, and bytes to messages and back.

Field numbers, names and types are the protocol's; lists of floats and of bools are declared as the bytes that they are
on the wire when packed (field type 2, little-endian float32 or one byte 0/1 each), as both ML-Agents and Unity write
them: an observation is then a view of what came in, not a Python list.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from palus.errors import ProtocolError
from palus.types import F32, Bool

API_VERSION = "1.5.0"
METHOD = "/communicator_objects.UnityToExternalProto/Exchange"
OK, CLOSING = 200, 400
"""`HeaderProto.status`."""
STEP, RESET, QUIT = 0, 1, 2
"""`CommandProto`."""
PNG = 1
"""`CompressionTypeProto`, else 0."""
GOAL_SIGNAL = 1
"""`ObservationTypeProto`, else 0."""
VECTOR, ENTITIES, IMAGE = (1,), (4, 1), (1, 2, 2)
"""`dimension_properties` of the three forms of observations: 1 none, 2 translational equivariance, 4 variable size."""

_PACKAGE = "communicator_objects"
_ENUMS = {
    "CommandProto": ("STEP", "RESET", "QUIT"),
    "SpaceTypeProto": ("discrete", "continuous"),
    "CompressionTypeProto": ("NONE", "PNG"),
    "ObservationTypeProto": ("DEFAULT", "GOAL_SIGNAL"),
}
_MESSAGES = {
    "UnityMessageProto": "1 header HeaderProto, 2 unity_output UnityOutputProto, 3 unity_input UnityInputProto",
    "HeaderProto": "1 status int32, 2 message string",
    "UnityOutputProto": "1 rl_output UnityRLOutputProto, 2 rl_initialization_output UnityRLInitializationOutputProto",
    "UnityInputProto": "1 rl_input UnityRLInputProto, 2 rl_initialization_input UnityRLInitializationInputProto",
    "UnityRLInitializationOutputProto": "1 name string, 2 communication_version string, 3 log_path string, "
    "5 brain_parameters repeated BrainParametersProto, 7 package_version string, "
    "8 capabilities UnityRLCapabilitiesProto",
    "UnityRLInitializationInputProto": "1 seed int32, 2 communication_version string, 3 package_version string, "
    "4 capabilities UnityRLCapabilitiesProto, 5 num_areas int32",
    "UnityRLOutputProto": "2 agentInfos map ListAgentInfoProto, 3 side_channel bytes",
    "ListAgentInfoProto": "1 value repeated AgentInfoProto",
    "UnityRLInputProto": "1 agent_actions map ListAgentActionProto, 4 command CommandProto, 5 side_channel bytes",
    "ListAgentActionProto": "1 value repeated AgentActionProto",
    "AgentInfoProto": "7 reward float, 8 done bool, 9 max_step_reached bool, 10 id int32, 11 action_mask bytes, "
    "13 observations repeated ObservationProto, 14 group_id int32, 15 group_reward float",
    "AgentActionProto": "1 vector_actions_deprecated bytes, 4 value float, 6 continuous_actions bytes, "
    "7 discrete_actions repeated int32",
    "BrainParametersProto": "3 vector_action_size_deprecated repeated int32, "
    "5 vector_action_descriptions_deprecated repeated string, 6 vector_action_space_type_deprecated SpaceTypeProto, "
    "7 brain_name string, 8 is_training bool, 9 action_spec ActionSpecProto",
    "ActionSpecProto": "1 num_continuous_actions int32, 2 num_discrete_actions int32, "
    "3 discrete_branch_sizes repeated int32, 4 action_descriptions repeated string",
    # compressed_data and float_data are a oneof: on the wire, two optional fields of which one is there.
    "ObservationProto": "1 shape repeated int32, 2 compression_type CompressionTypeProto, 3 compressed_data bytes, "
    "4 float_data FloatData, 5 compressed_channel_mapping repeated int32, 6 dimension_properties repeated int32, "
    "7 observation_type ObservationTypeProto, 8 name string",
    "FloatData": "1 data bytes",
    "AgentInfoActionPairProto": "1 agent_info AgentInfoProto, 2 action_info AgentActionProto",
    "DemonstrationMetaProto": "1 api_version int32, 2 demonstration_name string, 3 number_steps int32, "
    "4 number_episodes int32, 5 mean_reward float",
    "Any": "1 type_url string, 2 value bytes",  # google.protobuf's
    "TrainingEnvironmentInitialized": "1 mlagents_version string, 2 mlagents_envs_version string, "
    "3 python_version string, 4 torch_version string, 5 torch_device_type string, 6 num_envs int32, "
    "7 num_environment_parameters int32, 8 run_options string",
    "TrainingBehaviorInitialized": "1 behavior_name string, 2 trainer_type string, 3 extrinsic_reward_enabled bool, "
    "4 gail_reward_enabled bool, 5 curiosity_reward_enabled bool, 6 rnd_reward_enabled bool, "
    "7 behavioral_cloning_enabled bool, 8 recurrent_enabled bool, 9 visual_encoder string, "
    "10 num_network_layers int32, 11 num_network_hidden_units int32, 12 trainer_threaded bool, "
    "13 self_play_enabled bool, 14 curriculum_enabled bool, 15 config string",
    "UnityRLCapabilitiesProto": "1 baseRLCapabilities bool, 2 concatenatedPngObservations bool, "
    "3 compressedChannelMapping bool, 4 hybridActions bool, 5 trainingAnalytics bool, "
    "6 variableLengthObservation bool, 7 multiAgentGroups bool",
}
CAPABILITIES = tuple(field.split()[1] for field in _MESSAGES["UnityRLCapabilitiesProto"].split(", "))


def _declare() -> Any:
    """Name -> message class."""
    field_type = descriptor_pb2.FieldDescriptorProto
    scalars = {name: getattr(field_type, f"TYPE_{name.upper()}") for name in ("int32", "string", "bytes", "float")}
    scalars["bool"] = field_type.TYPE_BOOL
    file = descriptor_pb2.FileDescriptorProto(name="palus/unity.proto", package=_PACKAGE, syntax="proto3")
    for name, values in _ENUMS.items():
        enum = file.enum_type.add(name=name)
        for place, value in enumerate(values):
            enum.value.add(name=f"{name}_{value}", number=place)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for declared in fields.split(", "):
            number, field, *many, kind = declared.split()
            added = message.field.add(name=field, number=int(number), label=field_type.LABEL_OPTIONAL)
            if many:
                added.label = field_type.LABEL_REPEATED
            if many == ["map"]:
                entry = message.nested_type.add(name=f"{field[0].upper()}{field[1:].replace('_a', 'A')}Entry")
                entry.options.map_entry = True
                entry.field.add(name="key", number=1, type=field_type.TYPE_STRING, label=field_type.LABEL_OPTIONAL)
                entry.field.add(
                    name="value", number=2, type=field_type.TYPE_MESSAGE, type_name=f".{_PACKAGE}.{kind}",
                    label=field_type.LABEL_OPTIONAL,
                )  # fmt: skip
                kind = f"{name}.{entry.name}"
            if kind in scalars:
                added.type = scalars[kind]
            else:
                added.type = field_type.TYPE_ENUM if kind in _ENUMS else field_type.TYPE_MESSAGE
                added.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()  # its own: ML-Agents' files of the same names may be loaded as well
    pool.Add(file)
    return message_factory.GetMessageClassesForFiles([file.name], pool)


_CLASSES = _declare()
UnityMessage: Any = _CLASSES[f"{_PACKAGE}.UnityMessageProto"]
Observation: Any = _CLASSES[f"{_PACKAGE}.ObservationProto"]
Brain: Any = _CLASSES[f"{_PACKAGE}.BrainParametersProto"]
DemonstrationMeta: Any = _CLASSES[f"{_PACKAGE}.DemonstrationMetaProto"]
Anything: Any = _CLASSES[f"{_PACKAGE}.Any"]
EnvironmentTold: Any = _CLASSES[f"{_PACKAGE}.TrainingEnvironmentInitialized"]
BehaviorTold: Any = _CLASSES[f"{_PACKAGE}.TrainingBehaviorInitialized"]
InfoAndAction: Any = _CLASSES[f"{_PACKAGE}.AgentInfoActionPairProto"]


def message(status: int = OK) -> Any:
    """An empty `UnityMessageProto` with its header."""
    made = UnityMessage()
    made.header.status = status
    return made


def parse(data: bytes) -> Any:
    """A `UnityMessageProto` with a header whose status is known. Raises ProtocolError for anything else."""
    try:
        found = UnityMessage.FromString(data)
    except DecodeError as error:
        raise ProtocolError(
            f"{len(data)} bytes that are no message of ML-Agents' protocol {API_VERSION}, or one cut short ({error}); "
            "check that nothing but game and trainer uses this port"
        ) from error
    if found.header.status not in (OK, CLOSING):
        raise ProtocolError(
            f"a message with header status {found.header.status}; expected {OK}, or {CLOSING} at the end"
        )
    return found


def check_version(theirs: str, whose: str) -> None:
    """Raises ProtocolError unless the major versions agree (for major 0 also the minor ones)."""
    ours, other = API_VERSION.split("."), theirs.split(".")
    parts = 1 if ours[0] != "0" else 2
    if len(other) != 3 or other[:parts] != ours[:parts]:
        raise ProtocolError(
            f"{whose} speaks communicator version {theirs!r}, palus {API_VERSION}; use a release of ML-Agents' package "
            f"whose version begins with {ours[0]} (releases 1 to 22)"
        )


def floats(data: bytes, count: int, what: str) -> F32:
    """[count] float32, a view of `data`. Raises ProtocolError for another number of them."""
    if len(data) != 4 * count:
        raise ProtocolError(f"{what}: {len(data)} bytes; expected {count} numbers of 4 bytes")
    found: F32 = np.frombuffer(data, "<f4")
    return found


def bools(data: bytes, what: str) -> Bool:
    """[len(data)] bool. Raises ProtocolError for bytes other than 0 and 1."""
    found = np.frombuffer(data, np.uint8)
    if (found > 1).any():
        raise ProtocolError(f"{what}: expected bytes 0 and 1, found {int(found.max())}")
    return found.astype(np.bool_)


def packed(numbers: Any) -> bytes:
    """float32 numbers as a packed list."""
    return np.ascontiguousarray(numbers, "<f4").tobytes()
