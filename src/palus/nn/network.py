"""The network of every trainer: encoder, core, decoder, then the numbers of an action distribution and a value.

All weights lie in one fp32 vector (`palus.nn.parameters`). Normalisation of observations and returns belongs to the
network, as in Sample Factory, whose names of weights `Network.arrays` uses. Every module writes itself to ONNX beside
its `forward`, so that a file computes what is trained here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal, TypeVar

import numpy as np
import torch
from onnx import ModelProto
from torch import Tensor, nn

from palus.config.network import NetworkSettings
from palus.errors import ModelError
from palus.nn.action_head import ActionHead
from palus.nn.captured import Captured, doubled
from palus.nn.cores import Core
from palus.nn.encoders import Apart, Joint
from palus.nn.first_weights import in_order, initialize, seed_of
from palus.nn.graph import FORBIDDEN, Graph, PolicyOutputs, close_policy, open_policy
from palus.nn.int8 import Int8Acting, Remember, int8_acting
from palus.nn.int16 import Int16Weights
from palus.nn.int16_convolution import fits, rows_of
from palus.nn.layers import Activate, Chain, Convolution, Linear, fully_connected, undrawn
from palus.nn.parameters import FlatParameters, xavier_uniform
from palus.nn.place import CPU, Placement
from palus.nn.preprocessing import Preprocessor, Rows
from palus.nn.running import CLIP, RunningMoments
from palus.nn.small_attention import SelfAttention
from palus.nn.sparse import SparseLinear
from palus.nn.symmetry import images
from palus.trust import NOBODY, Trust
from palus.types import F32, I64, MASKS, AnyArray, BehaviorSpec, Discrete

OBSERVATION_PREFIX = "obs_normalizer.running_mean_std.running_mean_std."
RETURN_PREFIX = "returns_normalizer."
STATES = " states"
"""Beside the names of observations, as `MASKS`: the memory of rows that act."""
ALIGNED = 8
"""Numbers that weights on a device are aligned to: 16 bytes of bfloat16."""
GRAIN, FEWEST, EVEN = 4, 16, 64
"""A pass that acts has a multiple of GRAIN rows and at least FEWEST, its head of one column a multiple of EVEN. What
products and vector instructions give for a row depends on how many others there are where their number is odd or small
(measured in fp32, with MKL and oneDNN: below 4 on an AMD EPYC, below 16 on an Intel Xeon), and with it how matches are
spread over processes."""

MakeCritic = Callable[[BehaviorSpec, NetworkSettings, Trust], nn.Module]
Critic = Literal["shared", "separate", "none"] | MakeCritic
Inputs = Mapping[str, Tensor]
T = TypeVar("T")


class Network(nn.Module):
    """Policy and value of one behavior.

    dtype: the number format of products and activations; bfloat16 keeps fp32 weights beside its working copy.
    critic: `shared` takes the policy's features, `separate` has encoder, core and decoder of its own; a function makes
    a module that the learner evaluates itself, `network.critic`. streams: rewards of which the critic has a value each.
    generator: None leaves weights that `load_arrays` replaces. returns: moments that values are normalised by; None
    where the critic learns plain returns. place: where its weights lie; the first ones are the same anywhere. version:
    gradient steps. Threads may act side by side while nothing changes it; what plays beside a learner is a `twin`.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: NetworkSettings,
        generator: torch.Generator | None,
        dtype: torch.dtype = torch.float32,
        *,
        critic: Critic = "shared",
        streams: int = 1,
        trust: Trust = NOBODY,
        place: Placement = CPU,
    ) -> None:
        super().__init__()
        self.place, self._critic, self._trust = place, critic, trust
        self.spec, self.settings, self.version, self.squash = spec, settings, 0, settings.squash
        self.streams = streams
        self.sides = ("actor_", "critic_") if critic == "separate" else ("",)
        self.has_values = critic in ("shared", "separate")
        with torch.random.fork_rng(devices=[]):  # torch's own initialisers, and those of users, take no generator
            if generator is None:
                with undrawn():
                    self._build(critic, trust)
            else:
                torch.manual_seed(seed_of(generator, settings))
                self._build(critic, trust)
                initialize(in_order(self, self.sides, settings), settings, generator)
        self.to(place.device)
        self.weights = FlatParameters(
            self, dtype, in_order(self, self.sides, settings), 1 if place.compiled else ALIGNED
        )
        joined = self._parts[self.sides[0]][0].joined
        self.takes_rays = self._reads_rays(dtype)
        self.inputs = Preprocessor(spec.observations, settings, joined, dtype, place, self.takes_rays)
        self.scalers = self.inputs.scalers
        for module in self.modules() if not place.compiled else ():
            if isinstance(module, SelfAttention | SparseLinear | Activate):
                module.compiled = False
        self._acts, self._checked = Captured(self._acted, place), False
        self.returns: RunningMoments | None = None
        self.int8: Int8Acting | None = None
        parts = zip(spec.actions.parts, spec.actions.parameter_slices, strict=True)
        choices = [np.arange(k.start, k.stop) for part, k in parts if isinstance(part, Discrete)]
        self._choices = place.tensor(np.concatenate([np.zeros(0, np.int64), *choices]))

    def _build(self, critic: Critic, trust: Trust) -> None:
        settings, spec = self.settings, self.spec
        self._parts: dict[str, tuple[Apart | Joint, Core, Chain]] = {}
        for side in self.sides:
            encoder = (Apart if settings.encoding == "apart" else Joint)(spec.observations, settings, trust)
            core = Core(encoder.out_features, settings.memory)
            decoder = fully_connected(core.out_features, settings.decoder_layers, settings.activation, name="mlp")
            for name, module in (("encoder", encoder), ("core", core), ("decoder", decoder)):
                self.add_module(side + name, module)
            self._parts[side] = encoder, core, decoder
        if self.has_values:
            self.critic_linear = Linear(decoder.out_features, self.streams, xavier_uniform)
        self.action_parameterization = ActionHead(decoder.out_features, spec.actions, settings)
        if callable(critic):
            self.critic = critic(spec, settings, trust)
        self.state_size: int = core.state_size * len(self.sides)

    def _reads_rays(self, dtype: torch.dtype) -> bool:
        """Whether all that it sees are rays, which its first layers read in compact form. takes_rays: this."""
        if dtype != torch.float32 or not self.place.compiled:
            return False
        for encoder, _, _ in self._parts.values():
            layers = encoder.layers if isinstance(encoder, Joint) else None
            if not (isinstance(layers, Chain) and len(layers) and isinstance(layers[0], SparseLinear)):
                return False
        return all(module.reads_rays for module in self.modules() if isinstance(module, SparseLinear))

    def act_in_int8(self) -> bool:
        """Encode pictures in int8 where it acts, from the next `Int8Acting.calibrate` on; whether it does.

        It does where that is faster: for large encoders on CPUs with such products, beside weights in fp32. Not where
        the critic remembers by pictures of its own.
        """
        is_fp32 = self.place.compiled and self.weights.work.dtype == torch.float32
        if is_fp32 and (len(self.sides) == 1 or not self.state_size):
            shapes = {o.name: o.shape for o in self.spec.observations if o.is_image}
            encoder, core, _ = self._parts[self.sides[0]]
            self.int8 = int8_acting(encoder, core, shapes)
        return self.int8 is not None

    def learn_in_int16(self) -> None:
        """Compute the products of wide layers and of convolutions by codes wherever it does not act
        (`palus.nn.int16`)."""
        for module in self.modules():
            if type(module) is Linear and Int16Weights.fit(module.weight):
                module.coded = Int16Weights(module.weight)
            elif isinstance(module, Convolution) and fits(module.weight):
                module.coded = Int16Weights(rows_of(module.weight))

    def twin(self) -> Network:
        """A network that acts as this one does, until this one changes; then as it did, until it follows."""
        found = Network(
            self.spec, self.settings, None, self.weights.work.dtype,
            critic=self._critic, streams=self.streams, trust=self._trust, place=self.place,
        )  # fmt: skip
        if self.int8 is not None:
            found.int8 = self.int8.twin(*found._parts[found.sides[0]][:2])
        found.follow(self)
        return found

    def follow(self, other: Network) -> None:
        """Act from now on as another network, of which this one is a `twin`, does now."""
        self.weights.load(other.weights.master)
        for name, scaler in self.scalers.items():
            scaler.follow(other.scalers[name])
        self.returns = None if other.returns is None else other.returns.copy()
        if self.int8 is not None and other.int8 is not None:
            self.int8.begin_with(other.int8.ranges)
        self.version = other.version

    def images(self) -> dict[str, Tensor]:
        """For `FlatParameters.tie`: what `palus.nn.symmetry` says of the layers of policy and values. Raises
        ConfigError where there is no image."""
        named = ((name, module) for name, module in self.named_modules() if isinstance(module, Linear))
        layers = {name: module for name, module in named if not name.startswith("critic.")}  # that is of several agents
        first = {next(m for m in self._parts[side][0].modules() if isinstance(m, Linear)) for side in self.sides}
        last = self.action_parameterization.distribution_linear, self.critic_linear if self.has_values else None
        return images(self.spec, self.settings, layers, first, *last)

    def forward(
        self,
        inputs: Inputs,
        states: Tensor,
        keep: Tensor,
        masks: Tensor | None = None,
        remember: Remember | None = None,
        paused: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """T steps of B rows. inputs: name -> [T B, *shape], time first, as `inputs` makes them; states: [B, S] float32;
        keep: [T, B] float32, 0 where the row's state is zero before step t (both are read where there is memory);
        masks: [T B, M] bool; remember: stands in for the core, of a network with one side; paused: [T, B] bool, where
        the state stays as it is.

        Returns parameters [T B, L], values [T B, streams] (normalised where `returns` is; None with a critic of the
        learner's) and states [B, S], all float32.
        """
        own = torch.tensor_split(states, len(self.sides), 1)
        features, after = self._features(self.sides[0], inputs, own[0], keep, remember, paused)
        parameters = self.masked(self.action_parameterization.forward(features), masks)
        if len(self.sides) > 1:
            features, remembered = self._features(self.sides[1], inputs, own[1], keep, paused=paused)
            after = torch.cat([after, remembered], 1)
        values = _values_of(self.critic_linear, features) if self.has_values else None
        return parameters, values, after

    def _features(
        self,
        side: str,
        inputs: Inputs,
        state: Tensor,
        keep: Tensor,
        remember: Remember | None = None,
        paused: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        encoder, core, decoder = self._parts[side]
        x = encoder.forward(inputs)
        x, state = core.forward(x, state, keep, paused) if remember is None else remember(x, state, keep)
        return decoder.forward(x).float(), state  # the heads are small, and their outputs are compared: float32

    def masked(self, parameters: Tensor, masks: Tensor | None) -> Tensor:
        """Forbidden choices have a probability of 0. masks: [R, M] bool, True where allowed."""
        if masks is None:
            return parameters
        if not self.spec.actions.is_discrete:
            everywhere = torch.ones(parameters.shape, dtype=torch.bool, device=parameters.device)
            everywhere[:, self._choices] = masks
            masks = everywhere
        return parameters.masked_fill(~masks, FORBIDDEN)

    @torch.inference_mode()
    def act(
        self, observations: Mapping[str, Tensor], states: Tensor, masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """One decision of R rows, without gradient.

        observations: name -> [R, *shape] as games give them, uint8 images included; states: [R, S] float32; masks:
        [R, M] bool. Returns parameters [R, L], values [R] of the first stream, denormalised, or None where they would
        cost a pass of their own, new states [R, S], all float32. All lie where the network does.
        """
        if not self.place.compiled:
            return self._act_there(observations, states, masks)
        R = len(states)
        if R % GRAIN or R < FEWEST:
            rows = max(-(-R // GRAIN) * GRAIN, FEWEST)
            wide = {name: _widened(o, rows) for name, o in observations.items()}
            seen = None if masks is None else _widened(masks, rows)
            parameters, values, after = self.act(wide, _widened(states, rows), seen)
            return parameters[:R], values if values is None else values[:R], after[:R]
        inputs = self.inputs({name: o.numpy() for name, o in observations.items()})
        remember: Remember | None = None
        if self.int8 is not None:
            features, remember = self.int8.encoded(inputs, self.version)
            inputs |= features
        parameters, values, after = self._decided(inputs, states, masks, remember)
        return parameters, values if values is None else self.denormalize(values), after

    def _decided(
        self, inputs: Inputs, states: Tensor, masks: Tensor | None, remember: Remember | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """As `act`, of inputs as the encoders read them, but for the values, which are normalised."""
        keep = torch.ones(1, len(states), device=states.device)
        if not self.state_size and len(self.sides) > 1:
            x, _ = self._features(self.sides[0], inputs, states, keep)
            return self.masked(self.action_parameterization.forward(x), masks), None, states
        parameters, values, after = self(inputs, states, keep, masks, remember)
        return parameters, values if values is None else values[:, 0], after

    def _act_there(
        self, observations: Mapping[str, Tensor], states: Tensor, masks: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """`act` on a device, of a power of two of rows: what is asked for often is replayed (`Captured`)."""
        R = len(states)
        given = {**observations, STATES: states} | ({} if masks is None else {MASKS: masks})
        parameters, after, *values = self._acts(given, rows=doubled(FEWEST, R))
        told = self.denormalize(values[0][:R]) if values else None
        return parameters[:R], told, after[:R]

    def _acted(self, held: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Parameters, memory and, where acting gives them, values of the first stream as the critic gives them."""
        seen = {name: o for name, o in held.items() if name not in (STATES, MASKS)}
        parameters, values, after = self._decided(self.inputs(seen), held[STATES], held.get(MASKS))
        return (parameters, after) if values is None else (parameters, after, values)

    def values(
        self,
        observations: Mapping[str, Rows],
        states: F32,
        spread: Callable[[Callable[[slice | I64], None], Sequence[slice | I64]], Iterable[None]] = map,
        pieces: Sequence[slice | I64] | None = None,
    ) -> F32:
        """The critic's estimates [R, streams], denormalised, without gradient.

        observations: name -> [R, *shape]; states: [R, S]; spread: `map`, or one on threads. pieces: the rows of each
        pass, by default as they come.
        """
        R, side = len(next(iter(observations.values()))), self.sides[-1]
        out = np.empty((R, self.streams), np.float32)

        @torch.no_grad()
        def evaluate(part: slice | I64) -> None:
            own = {name: rows[part] for name, rows in observations.items()} if isinstance(part, slice) else observations
            inputs = self.inputs(own, None if isinstance(part, slice) else part)
            state = torch.tensor_split(self.place.tensor(states[part]), len(self.sides), 1)[-1]
            features, _ = self._features(side, inputs, state, state.new_ones(1, len(state)))
            out[part] = self.denormalize(self.critic_linear.in_float32(features)).cpu().numpy()

        cut = [slice(first, first + self.rows_at_once) for first in range(0, R, self.rows_at_once)]
        for _ in spread(evaluate, cut if pieces is None else pieces):
            pass
        return out

    @cached_property
    def rows_at_once(self) -> int:
        """Rows of a pass outside of the update."""
        return self.place.rows(any(o.is_image for o in self.spec.observations))

    def denormalize(self, values: Tensor) -> Tensor:
        """The critic's outputs in units of rewards."""
        if self.returns is None:
            return values
        return values.clamp(-CLIP, CLIP) * float(self.returns.deviation[0]) + float(self.returns.mean[0])

    @classmethod
    def acting(
        cls,
        spec: BehaviorSpec,
        settings: NetworkSettings,
        arrays: Mapping[str, AnyArray],
        dtype: torch.dtype = torch.float32,
        *,
        trust: Trust = NOBODY,
        place: Placement = CPU,
    ) -> Network:
        """What acts of a stored network. arrays: of `arrays` or `acting_arrays`. Raises ModelError when they misfit."""
        arrays = acting_arrays(arrays)
        head = arrays.get("critic_linear.weight")
        critic: Critic = "none" if head is None else "shared"
        streams = len(head) if head is not None and head.ndim else 1
        network = cls(spec, settings, None, dtype, critic=critic, streams=streams, trust=trust, place=place)
        network.load_arrays(arrays)
        return network

    @cached_property
    def chain(self) -> list[Linear | Activate] | None:
        """The policy's layers from vectors to features, where they follow each other and nothing is between them."""
        encoder, core, decoder = self._parts[self.sides[0]]
        vectors = all(o.is_vector for o in self.spec.observations)
        if not (vectors and isinstance(encoder, Joint) and isinstance(encoder.layers, Chain)) or core.layers:
            return None
        parts = (encoder.layers, decoder)
        return [module for part in parts for module in part.modules() if isinstance(module, Linear | Activate)]

    @cached_property
    def kind(self) -> Hashable | None:
        """Networks of one kind can act together (`palus.nn.crowd`); None for one that cannot: one without a `chain`
        and, on a device, one that normalises what it sees, each by moments of its own."""
        normalizes = any(scaler.moments is not None for scaler in self.scalers.values())
        if self.chain is None or (normalizes and not self.place.compiled):
            return None
        return self.settings.model_dump_json(), tuple(acting_arrays(self.weights.tensors)), self.takes_rays

    @property
    def can_export(self) -> bool:
        """Whether `onnx` can be written: every module says how."""
        return all(hasattr(encoder, "onnx") for encoder in self._parts[self.sides[0]][0].encoders.values())

    def acting_arrays(self, arrays: Mapping[str, AnyArray] | None = None) -> dict[str, AnyArray]:
        """Those of `arrays`, of who has them, that acting needs: the form of snapshots and policies on disk."""
        return acting_arrays(self.arrays() if arrays is None else arrays)

    def arrays(self) -> dict[str, AnyArray]:
        """Weights (float32) and moments (float64) by Sample Factory's names: snapshots, exports, populations."""
        arrays: dict[str, AnyArray] = self.weights.arrays()
        arrays |= self.inputs.arrays(OBSERVATION_PREFIX)
        return arrays | (self.returns.arrays(RETURN_PREFIX) if self.returns is not None else {})

    def load_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take over what `arrays` gave. Raises ModelError, and changes nothing, when names or shapes are others."""
        expected: dict[str, tuple[int, ...] | None] = {name: tuple(s) for name, s in self.weights.shapes.items()}
        for name, scaler in self.scalers.items():
            if scaler.moments is not None:
                own = f"{OBSERVATION_PREFIX}{name}."
                expected |= {own + "running_mean": scaler.shape, own + "running_var": scaler.shape, own + "count": None}
        if RETURN_PREFIX + "running_mean" in arrays:
            expected |= dict.fromkeys(RETURN_PREFIX + k for k in ("running_mean", "running_var", "count"))
        for name, shape in expected.items():
            if fault := _misfit(arrays.get(name), shape):
                raise ModelError(
                    f"weights {name}: {fault}; expected {'one number' if shape is None else f'shape {shape}'}; "
                    "use the run file that the policy was trained with"
                )
        for name in sorted(arrays.keys() - expected.keys()):
            if not name.startswith(RETURN_PREFIX):
                raise ModelError(
                    f"weights {name}: not of this network; use the run file that the policy was trained with"
                )
        flat = np.concatenate([np.ravel(arrays[name]) for name in self.weights.shapes]).astype(np.float32)
        self.weights.load(self.weights.unpacked(torch.from_numpy(flat)))
        if self.int8 is not None:
            self.int8.begin_with({})
        self.inputs.load_arrays(arrays, OBSERVATION_PREFIX)
        self.returns = None
        if RETURN_PREFIX + "running_mean" in arrays:
            self.returns = RunningMoments(1)
            self.returns.load_arrays(arrays, RETURN_PREFIX)

    def onnx(self, props: Mapping[str, str] | None = None, arrays: Mapping[str, AnyArray] | None = None) -> ModelProto:
        """What acts, as a file of its own; a separate critic is not in it. props: facts that go with it. arrays: what
        `arrays` gives, of who has them.

        Raises ModelError on non-finite weights, and for an encoder of one's own without a method `onnx`.
        """
        arrays = self.arrays() if arrays is None else arrays
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise ModelError(
                    f"{self.spec.name}: {name} holds NaN or infinity; the training diverged, take an older policy"
                )
        g = Graph({id(p): (name, arrays[name]) for name, p in self.named_parameters()})
        side, state_size = self.sides[0], self.state_size // len(self.sides)
        state = open_policy(g, self.spec, state_size)
        inputs = {o.name: self.scalers[o.name].onnx(g, o.name, o.dtype) for o in self.spec.observations}
        encoder, core, decoder = self._parts[side]
        x, state = core.onnx(g, encoder.onnx(g, inputs), state)
        x = decoder.onnx(g, x)
        parts = self.action_parameterization.onnx(g, x)
        values = self._values_onnx(g, x) if self.has_values and len(self.sides) == 1 else None
        outputs = PolicyOutputs(parts, values, state or None, self.squash)
        file = close_policy(g, self.spec, outputs, state_size, props or {}, check=not self._checked)
        self._checked = True  # later files differ by their weights, which no check reads
        return file

    def _values_onnx(self, g: Graph, x: str) -> str:
        """The critic's output, of the first stream, in units of rewards."""
        value = self.critic_linear.onnx(g, x)
        value = g.columns(value, 0, 1) if self.streams > 1 else value
        if self.returns is not None:
            value = g.add("Clip", [value], min=-CLIP, max=CLIP)
            value = g.add("Mul", [value, g.number(float(self.returns.deviation[0]))])
            value = g.add("Add", [value, g.number(float(self.returns.mean[0]))])
        return g.add("Squeeze", [value], axes=[1])


def acting_arrays(arrays: Mapping[str, T]) -> dict[str, T]:
    """Without a critic that acting does not read, and under the names of a network that never had one."""
    if any(name.startswith("actor_") for name in arrays):
        return {k.removeprefix("actor_"): v for k, v in arrays.items() if not k.startswith(("critic_", RETURN_PREFIX))}
    return {name: array for name, array in arrays.items() if not name.startswith("critic.")}


def _misfit(array: AnyArray | None, shape: tuple[int, ...] | None) -> str:
    """What is wrong with an array, as a part of a sentence; empty where nothing is. shape: None for one number."""
    if array is None:
        return "missing"
    if array.dtype.kind not in "fiu":
        return f"no numbers ({array.dtype})"
    fits = array.size == 1 if shape is None else array.shape == shape
    return "" if fits else f"shape {array.shape}"


def _widened(x: Tensor, rows: int) -> Tensor:
    """Rows and, of no meaning, so many more that there are as many as that."""
    return torch.cat([x, x[-1:].expand(rows - len(x), *x.shape[1:])])


def _values_of(layer: Linear, x: Tensor) -> Tensor:
    """What the critic's head says; of who acts with a multiple of `EVEN` rows."""
    if not torch.is_inference_mode_enabled() or not len(x) % EVEN:
        return layer.in_float32(x)
    return layer.in_float32(_widened(x, -(-len(x) // EVEN) * EVEN))[: len(x)]
