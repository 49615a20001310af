"""The ONNX file of an APPO policy: raw observations and the recurrent state in, probabilities and the next state out.

Inputs: every observation under its name, [batch, *shape], images uint8 and vectors float32; `recurrent_in` [batch, S],
zeros at an episode's start. Outputs: `action_probabilities` [batch, sum of choices], `action_means` and
`action_deviations` [batch, numbers], `values` [batch], `recurrent_out` [batch, S].

Probabilities are there where the game has discrete parts, in the parts' order, each part's summing to 1; means and
deviations where it has continuous ones. Scaling and normalisation of observations, and the values' return to units of
reward, are inside the graph. Weights come by Sample Factory's names (`palus.nn.actor_critic`).
Source: ONNX operators, version 9 (GRU with linear_before_reset and LSTM compute what torch's do).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from palus import __version__
from palus.config.network import Memory, NetworkSettings
from palus.errors import ModelError
from palus.export.graph import Graph
from palus.export.onnx import IR_VERSION, OPSET
from palus.files import write_atomically
from palus.nn.encoders import CONVOLUTIONS, RESIDUAL, RESNET_STAGES, sides_of, stage_padding
from palus.types import F32, AnyArray, Continuous, Discrete, GameSpec, ObservationSpec

CLIP, EPSILON = 5.0, 1e-5
"""Of normalised observations and returns; as in `palus.nn.running`."""
LOG_STD_LIMIT = float(np.log(1e4))
GATES = {"gru": (3, (1, 0, 2)), "lstm": (4, (0, 3, 1, 2))}
"""Gates of a core, and the place of ONNX's gates among torch's: update, reset, new; input, output, forget, cell."""


def build_appo_onnx(arrays: Mapping[str, AnyArray], spec: GameSpec, settings: NetworkSettings) -> onnx.ModelProto:
    """The model of a policy. arrays: of `ActorCritic.arrays`.

    Raises ModelError on non-finite weights, missing ones, and encoders of one's own.
    """
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ModelError(f"{spec.env_id}: {name} holds NaN or infinity; the training diverged, take an older one")
    if settings.vis_encode_type not in (*CONVOLUTIONS, *RESIDUAL) and any(o.is_image for o in spec.observations):
        raise ModelError(
            f"{spec.env_id}: {settings.vis_encode_type} is an encoder of your own; export it with torch.onnx"
        )
    try:
        graph = _Writer(arrays, spec, settings).write()
    except KeyError as error:
        raise ModelError(
            f"{spec.env_id}: no weights {error}; give the run file that the policy was trained with"
        ) from error
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="palus",
        producer_version=__version__,
    )
    actions = [{"kind": type(part).__name__.lower(), **asdict(part)} for part in spec.actions.parts]
    helper.set_model_props(
        model, {"game": spec.env_id, "actions": json.dumps(actions), "frameskip": str(spec.frameskip)}
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def write_appo_onnx(path: Path, arrays: Mapping[str, AnyArray], spec: GameSpec, settings: NetworkSettings) -> Path:
    """The same as a file, atomically. Raises StorageError, ModelError."""
    data = build_appo_onnx(arrays, spec, settings).SerializeToString()
    write_atomically(path, lambda file: file.write(data) and None)
    return path


class _Writer:
    """Writes one network; methods take and return names of tensors."""

    def __init__(self, arrays: Mapping[str, AnyArray], spec: GameSpec, settings: NetworkSettings) -> None:
        self.arrays, self.spec, self.settings = arrays, spec, settings
        self.g = Graph()
        self.sides = sides_of(arrays)
        self.memory = settings.memory
        self.state_size = self.memory.memory_size * self.memory.num_layers * len(self.sides) if self.memory else 0
        self.after: list[str] = []

    def write(self) -> onnx.GraphProto:
        """The whole graph."""
        inputs = [
            helper.make_tensor_value_info(
                o.name, TensorProto.UINT8 if o.dtype == "uint8" else TensorProto.FLOAT, ["batch", *o.shape]
            )
            for o in self.spec.observations
        ]
        if self.state_size:
            inputs.append(_floats("recurrent_in", ["batch", self.state_size]))
        normal = {o.name: self._normalize(o) for o in self.spec.observations}
        features = [self._side(side, normal) for side in self.sides]
        outputs = self._actions(features[0])
        self._values(features[-1])
        outputs.append(_floats("values", ["batch"]))
        if self.state_size:
            self.g.add("Concat", self.after, "recurrent_out", axis=1)
            outputs.append(_floats("recurrent_out", ["batch", self.state_size]))
        return helper.make_graph(self.g.nodes, self.spec.env_id, inputs, outputs, self.g.constants)

    def _constant(self, name: str) -> str:
        if all(constant.name != name for constant in self.g.constants):
            self.g.constant(name, self.arrays[name].astype(np.float32))
        return name

    def _normalize(self, observation: ObservationSpec) -> str:
        """clip((x / divisor - mean) / deviation, +-5) as one factor and one summand per element."""
        g, name = self.g, observation.name
        divisor = self.settings.image_scale if observation.dtype == "uint8" else 1.0
        x = g.add("Cast", [name], f"{name}_float", to=TensorProto.FLOAT) if observation.dtype == "uint8" else name
        prefix = f"obs_normalizer.running_mean_std.running_mean_std.{name}."
        names = self.settings.normalize_names
        if not self.settings.normalize or (names is not None and name not in names):
            return g.add("Div", [x, g.constant(f"{name}_divisor", np.array([divisor], np.float32))], f"{name}_scaled")
        mean = self.arrays[prefix + "running_mean"].astype(np.float64)
        deviation = np.sqrt(self.arrays[prefix + "running_var"].astype(np.float64) + EPSILON)
        factor = g.constant(f"{name}_factor", (1.0 / (divisor * deviation)).astype(np.float32)[None])
        summand = g.constant(f"{name}_summand", (-mean / deviation).astype(np.float32)[None])
        x = g.add("Add", [g.add("Mul", [x, factor], f"{name}_scaled"), summand], f"{name}_centred")
        return g.add("Clip", [x], f"{name}_normalized", min=-CLIP, max=CLIP)

    def _side(self, side: str, normal: Mapping[str, str]) -> str:
        """Encoder, core and decoder of the actor, the critic or both."""
        encoded = [
            self._encoder(f"{side}encoder.encoders.{o.name}.", o, normal[o.name]) for o in self.spec.observations
        ]
        x = self.g.add("Concat", encoded, f"{side}encoded", axis=1) if len(encoded) > 1 else encoded[0]
        x = self._core(side, x)
        return self._layers(f"{side}decoder.mlp.", x, len(self.settings.decoder_layers))

    def _encoder(self, prefix: str, observation: ObservationSpec, x: str) -> str:
        if not observation.is_image:
            return self._layers(f"{prefix}mlp_head.", x, self.settings.num_layers)
        if self.settings.vis_encode_type == "resnet_impala":
            x = self._residual_stack(f"{prefix}conv_head.", x)
        elif self.settings.vis_encode_type == "resnet_strided":
            x = self._strided_stack(f"{prefix}conv_head.", x)
        else:
            prefix += "enc."
            for i, (_, _, stride) in enumerate(CONVOLUTIONS[self.settings.vis_encode_type]):
                x = self._activation(self._convolution(f"{prefix}conv_head.{2 * i}.", x, strides=[stride] * 2))
        flat = self.g.add("Flatten", [x], f"{prefix}flat", axis=1)
        return self._layers(f"{prefix}mlp_layers.", flat, self.settings.image_layers)

    def _convolution(self, prefix: str, x: str, **attributes: list[int]) -> str:
        weights = [self._constant(f"{prefix}weight"), self._constant(f"{prefix}bias")]
        return self.g.add("Conv", [x, *weights], f"{prefix}out", **attributes)

    def _residual_stack(self, prefix: str, x: str) -> str:
        """Three stages: convolution, pooling, two residual blocks; module numbers as torch counts them."""
        for first in (0, 4, 8):
            x = self._convolution(f"{prefix}{first}.", x, pads=[1] * 4)
            x = self.g.add(
                "MaxPool", [x], f"{prefix}{first + 1}.out", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4
            )
            for block in (first + 2, first + 3):
                x = self._residual_block(f"{prefix}{block}.", x)
        return self._activation(x, prefix)

    def _strided_stack(self, prefix: str, x: str) -> str:
        """Stages of a convolution, residual blocks and an activation; module numbers as torch counts them."""
        number = 0
        for _, kernel, stride, blocks in RESNET_STAGES:
            pads = [stage_padding(kernel)] * 4
            x = self._convolution(f"{prefix}{number}.", x, strides=[stride] * 2, pads=pads)
            for block in range(number + 1, number + 1 + blocks):
                x = self._residual_block(f"{prefix}{block}.", x)
            x = self._activation(x, f"{prefix}{number}.")
            number += blocks + 2
        return x

    def _residual_block(self, prefix: str, x: str) -> str:
        inner = x
        for part in (1, 3):
            name = f"{prefix}res_block_core.{part}."
            inner = self._convolution(name, self._activation(inner, name), pads=[1] * 4)
        return self.g.add("Add", [x, inner], f"{prefix}out")

    def _linear(self, prefix: str, x: str) -> str:
        weights = [self._constant(f"{prefix}weight"), self._constant(f"{prefix}bias")]
        return self.g.add("Gemm", [x, *weights], f"{prefix}out", transB=1)

    def _layers(self, prefix: str, x: str, count: int) -> str:
        for i in range(count):
            x = self._activation(self._linear(f"{prefix}{2 * i}.", x))
        return x

    def _activation(self, x: str, place: str = "") -> str:
        if self.settings.activation == "swish":
            return self.g.add("Mul", [x, self.g.add("Sigmoid", [x], f"{place}{x}_gate")], f"{place}{x}_active")
        kind = {"elu": "Elu", "relu": "Relu", "tanh": "Tanh"}[self.settings.activation]
        return self.g.add(kind, [x], f"{place}{x}_active")

    def _core(self, side: str, x: str) -> str:
        """The recurrent layers; their states go to `after` in the order in which `recurrent_in` holds them."""
        if self.memory is None:
            return x
        size, layers = self.memory.width, self.memory.num_layers
        states = self.memory.memory_size // size
        first = len(self.after) * size
        for layer in range(layers):
            given = [
                self._state(f"{side}state{s}_{layer}", first + (s * layers + layer) * size, size) for s in range(states)
            ]
            x = self._recurrent_layer(side, layer, x, given, self.memory)
        self.after += [f"{side}after{s}_{layer}" for s in range(states) for layer in range(layers)]
        return x

    def _state(self, name: str, start: int, size: int) -> str:
        """Columns of `recurrent_in` as [1, batch, size]."""
        own = self.g.add("Slice", ["recurrent_in"], f"{name}_rows", axes=[1], starts=[start], ends=[start + size])
        return self.g.add("Unsqueeze", [own], name, axes=[0])

    def _recurrent_layer(self, side: str, layer: int, x: str, given: list[str], memory: Memory) -> str:
        kind, size = memory.kind, memory.width
        gates, order = GATES[kind]

        def weights(name: str) -> F32:
            found = self.arrays[f"{side}core.core.{name}_l{layer}"].astype(np.float32)
            return np.concatenate([found.reshape(gates, size, -1)[k] for k in order])[None]

        bias = np.concatenate([weights("bias_ih"), weights("bias_hh")], axis=1)[..., 0]
        prefix = f"{side}core{layer}_"
        constants = [
            self.g.constant(f"{prefix}input_weight", weights("weight_ih")),
            self.g.constant(f"{prefix}state_weight", weights("weight_hh")),
            self.g.constant(f"{prefix}bias", bias),
        ]
        step = self.g.add("Unsqueeze", [x], f"{prefix}step", axes=[0])
        ends = [f"{prefix}end{s}" for s in range(len(given))]
        extra = {"linear_before_reset": 1} if kind == "gru" else {}
        self.g.add_all(kind.upper(), [step, *constants, "", *given], ["", *ends], hidden_size=size, **extra)
        after = [self.g.add("Squeeze", [end], f"{side}after{s}_{layer}", axes=[0]) for s, end in enumerate(ends)]
        return after[0]

    def _actions(self, x: str) -> list[onnx.ValueInfoProto]:
        """Probabilities, means and deviations, and their descriptions."""
        g, actions = self.g, self.spec.actions
        adaptive = self.settings.adaptive_deviation
        out = self._linear("action_parameterization.distribution_linear.", x)
        probabilities, means, deviations = [], [], []
        column = free = 0
        for k, part in enumerate(actions.parts):
            width = part.parameters if isinstance(part, Discrete) or adaptive else part.size
            own = self._columns(out, f"part{k}", column, column + width)
            column += width
            if isinstance(part, Discrete):
                probabilities.append(g.add("Softmax", [own], f"part{k}_probabilities", axis=1))
                continue
            means.append(self._mean(part, own, k))
            deviations.append(self._deviation(part, own, means[-1], k, free))
            free += part.size
        outputs = []
        for name, pieces, width in (
            ("action_probabilities", probabilities, sum(p.choices for p in actions.parts if isinstance(p, Discrete))),
            ("action_means", means, sum(p.size for p in actions.parts if isinstance(p, Continuous))),
            ("action_deviations", deviations, sum(p.size for p in actions.parts if isinstance(p, Continuous))),
        ):
            if pieces:
                g.add("Concat", pieces, name, axis=1)
                outputs.append(_floats(name, ["batch", width]))
        return outputs

    def _columns(self, x: str, name: str, start: int, stop: int) -> str:
        return self.g.add("Slice", [x], name, axes=[1], starts=[start], ends=[stop])

    def _mean(self, part: Continuous, own: str, k: int) -> str:
        mean, scale = self._columns(own, f"part{k}_mean", 0, part.size), self.settings.tanh_scale
        if not scale:
            return mean
        by = self.g.constant(f"part{k}_scale", np.array([scale], np.float32))
        squashed = self.g.add("Tanh", [self.g.add("Div", [mean, by], f"part{k}_narrow")], f"part{k}_squashed")
        return self.g.add("Mul", [squashed, by], f"part{k}_wide")

    def _deviation(self, part: Continuous, own: str, mean: str, k: int, free: int) -> str:
        if self.settings.adaptive_deviation:
            log = self._columns(own, f"part{k}_log", part.size, 2 * part.size)
        else:
            learned = self.arrays["action_parameterization.learned_stddev"][free : free + part.size]
            none = self.g.add("Sub", [mean, mean], f"part{k}_zeros")  # gives the vector its rows
            log = self.g.add(
                "Add", [none, self.g.constant(f"part{k}_learned", learned.astype(np.float32)[None])], f"part{k}_log"
            )
        limited = self.g.add("Clip", [log], f"part{k}_limited", min=-LOG_STD_LIMIT, max=LOG_STD_LIMIT)
        return self.g.add("Exp", [limited], f"part{k}_deviations")

    def _values(self, x: str) -> None:
        """The critic's output in units of reward."""
        g = self.g
        value = self._linear("critic_linear.", x)
        if "returns_normalizer.running_mean" in self.arrays:
            mean, variance = (
                self.arrays[f"returns_normalizer.running_{k}"].astype(np.float64) for k in ("mean", "var")
            )
            value = g.add("Clip", [value], "value_clipped", min=-CLIP, max=CLIP)
            deviation = g.constant("return_deviation", np.sqrt(variance + EPSILON).astype(np.float32).reshape(1))
            value = g.add("Mul", [value, deviation], "value_scaled")
            value = g.add("Add", [value, g.constant("return_mean", mean.astype(np.float32).reshape(1))], "value_column")
        g.add("Squeeze", [value], "values", axes=[1])


def _floats(name: str, shape: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
