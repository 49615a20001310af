"""The network of APPO: encoder, core, decoder, then a value and the numbers of an action distribution.

All weights lie in one fp32 vector (`palus.nn.parameters`); normalisation of observations and returns belongs to the
policy, as in Sample Factory, whose names of weights `ActorCritic.arrays` uses.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from palus.config.network import NetworkSettings
from palus.errors import ModelError
from palus.nn.cores import make_core
from palus.nn.encoders import Encoder, fully_connected
from palus.nn.parameters import FlatParameters
from palus.nn.running import CLIP, ObservationScaler, RunningMoments
from palus.trust import NOBODY, Trust
from palus.types import I64, ActionSpec, AnyArray, Continuous, Discrete, GameSpec, ObservationSpec

OBSERVATION_PREFIX = "obs_normalizer.running_mean_std.running_mean_std."
RETURN_PREFIX = "returns_normalizer."


class ActionHead(nn.Module):
    """Linear layer to the distribution's parameters; deviations are its outputs too, or vectors of their own."""

    def __init__(self, in_features: int, actions: ActionSpec, settings: NetworkSettings) -> None:
        super().__init__()
        self.actions, self.adaptive, self.tanh_scale = actions, settings.adaptive_deviation, settings.tanh_scale
        free = 0 if self.adaptive else sum(p.size for p in actions.parts if isinstance(p, Continuous))
        self.distribution_linear = nn.Linear(in_features, actions.parameters - free)
        if free:
            self.learned_stddev = nn.Parameter(torch.full((free,), float(np.log(settings.initial_deviation))))

    def forward(self, x: Tensor) -> Tensor:
        """[R, in] -> [R, L]."""
        out = _float(self.distribution_linear, x)
        if self.actions.is_discrete:
            return out
        pieces, column, free = [], 0, 0
        for part in self.actions.parts:
            own = part.parameters if self.adaptive or isinstance(part, Discrete) else part.size
            piece = out[:, column : column + own]
            column += own
            if isinstance(part, Continuous):
                means, deviations = piece[:, : part.size], piece[:, part.size :]
                if self.tanh_scale:
                    means = torch.tanh(means / self.tanh_scale) * self.tanh_scale
                if not self.adaptive:
                    deviations = self.learned_stddev[free : free + part.size].float().expand(len(out), -1)
                    free += part.size
                piece = torch.cat([means, deviations], 1)
            pieces.append(piece)
        return torch.cat(pieces, 1)


class Decoder(nn.Module):
    """Fully connected layers after the core; none by default."""

    def __init__(self, in_features: int, settings: NetworkSettings) -> None:
        super().__init__()
        self.mlp = fully_connected(in_features, settings.decoder_layers, settings.activation)
        self.out_features = settings.decoder_layers[-1] if settings.decoder_layers else in_features

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(x)  # type: ignore[no-any-return]


class ActorCritic(nn.Module):
    """Policy and value of one game's agents.

    dtype: the number format of products and activations; bfloat16 keeps fp32 weights beside its working copy.
    shared_critic: the value reads the policy's encoder, core and decoder instead of its own.
    returns: moments that values are normalised by; None where the critic learns plain returns. version: gradient steps.
    `lock` is held while acting and while weights change, so one thread may act while another learns.
    """

    def __init__(
        self,
        spec: GameSpec,
        settings: NetworkSettings,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        *,
        shared_critic: bool = True,
        trust: Trust = NOBODY,
    ) -> None:
        super().__init__()
        self.spec, self.settings, self.version = spec, settings, 0
        self.sides = ("",) if shared_critic else ("actor_", "critic_")
        self.lock = threading.RLock()
        with torch.random.fork_rng(devices=[]):  # torch's own initialisers, and those of users, take no generator
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            self._build(settings, trust)
        self.weights = FlatParameters.of_module(self, dtype)
        self.scalers = {o.name: _scaler(o, settings) for o in spec.observations}
        self.returns: RunningMoments | None = None

    def _build(self, settings: NetworkSettings, trust: Trust) -> None:
        for side in self.sides:
            encoder = Encoder(self.spec.observations, settings, trust)
            core = make_core(encoder.out_features, settings.memory)
            decoder = Decoder(core.out_features, settings)
            for name, module in (("encoder", encoder), ("core", core), ("decoder", decoder)):
                self.add_module(side + name, module)
        self.critic_linear = nn.Linear(decoder.out_features, 1)
        self.action_parameterization = ActionHead(decoder.out_features, self.spec.actions, settings)
        self.state_size: int = core.state_size * len(self.sides)
        self.apply(self._initialize)

    def _initialize(self, module: nn.Module) -> None:
        if self.settings.initialization == "torch" or not isinstance(module, nn.Linear | nn.Conv2d):
            return
        gain = self.settings.initialization_gain
        if self.settings.initialization == "mlagents":
            nn.init.kaiming_normal_(module.weight, nonlinearity="linear")
            module.weight.data *= gain
        elif self.settings.initialization == "orthogonal":
            nn.init.orthogonal_(module.weight, gain)
        else:
            nn.init.xavier_uniform_(module.weight, gain)
        if module.bias is not None:
            nn.init.zeros_(module.bias)

    def inputs(self, observations: Mapping[str, AnyArray], index: I64) -> dict[str, Tensor]:
        """Rows of observations as the network reads them. observations: name -> [N, *shape] raw; index: [R]."""
        return {name: scaler(observations[name], index, self.weights.dtype) for name, scaler in self.scalers.items()}

    def forward(self, inputs: Mapping[str, Tensor], states: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """T steps of B rows. inputs: name -> [T B, *shape], time first, as `inputs` makes them; states: [B, S] float32;
        keep: [T, B] float32, 0 where the row's state is zero before step t.

        Returns parameters [T B, L], values [T B] (normalised where `returns` is) and states [B, S], all float32.
        """
        features, after = [], []
        for side, state in zip(self.sides, states.chunk(len(self.sides), 1), strict=True):
            encoder, core, decoder = (getattr(self, side + name) for name in ("encoder", "core", "decoder"))
            x, state = core(encoder(inputs), state, keep)
            features.append(decoder(x).float())  # the heads are small, and their outputs are compared: float32
            after.append(state)
        return self.action_parameterization(features[0]), _float(self.critic_linear, features[-1])[:, 0], _beside(after)

    @torch.inference_mode()
    def act(self, observations: Mapping[str, Tensor], states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One decision of R rows, without gradient.

        observations: name -> [R, *shape] raw, uint8 images included; states: [R, S] float32.
        Returns parameters [R, L], values [R] denormalised, new states [R, S], all float32.
        """
        with self.lock:
            inputs = self.inputs({name: o.numpy() for name, o in observations.items()}, np.arange(len(states)))
            parameters, values, states = self(inputs, states, torch.ones(1, len(states)))
            return parameters, self.denormalize(values), states

    def denormalize(self, values: Tensor) -> Tensor:
        """The critic's outputs in units of rewards."""
        if self.returns is None:
            return values
        return values.clamp(-CLIP, CLIP) * float(self.returns.deviation[0]) + float(self.returns.mean[0])

    def arrays(self) -> dict[str, AnyArray]:
        """Weights (float32) and moments (float64) by Sample Factory's names: snapshots, exports, populations."""
        arrays: dict[str, AnyArray] = {k: v.detach().numpy().copy() for k, v in self.weights.masters("").items()}
        for name, scaler in self.scalers.items():
            if scaler.moments is not None:
                found = scaler.moments.arrays(f"{OBSERVATION_PREFIX}{name}.")
                arrays |= {k: v.reshape(scaler.shape) if v.size > 1 else v for k, v in found.items()}
        return arrays | (self.returns.arrays(RETURN_PREFIX) if self.returns is not None else {})

    def load_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take over what `arrays` gave. Raises ModelError, and changes nothing, when names or shapes are others."""
        expected = {name: tuple(shape) for name, shape in self.weights.shapes.items()}
        for name, scaler in self.scalers.items():
            if scaler.moments is not None:
                expected |= {f"{OBSERVATION_PREFIX}{name}.{k}": scaler.shape for k in ("running_mean", "running_var")}
        for name, shape in expected.items():
            found = arrays[name].shape if name in arrays else None
            if found != shape:
                raise ModelError(
                    f"weights {name}: {'missing' if found is None else f'shape {found}'}; expected shape {shape}; "
                    "use the run file that the policy was trained with"
                )
        with self.lock:
            flat = np.concatenate([np.ravel(arrays[name]) for name in self.weights.shapes]).astype(np.float32)
            self.weights.load(torch.from_numpy(flat))
            for name, scaler in self.scalers.items():
                if scaler.moments is not None:
                    scaler.moments.load_arrays(arrays, f"{OBSERVATION_PREFIX}{name}.")
                    scaler.refresh()
            self.returns = None
            if RETURN_PREFIX + "running_mean" in arrays:
                self.returns = RunningMoments(1)
                self.returns.load_arrays(arrays, RETURN_PREFIX)


def _scaler(observation: ObservationSpec, settings: NetworkSettings) -> ObservationScaler:
    names = settings.normalize_names
    normalize = settings.normalize and (names is None or observation.name in names)
    divisor = settings.image_scale if observation.dtype == "uint8" else 1.0
    return ObservationScaler(observation.shape, divisor, normalize)


def _float(layer: nn.Linear, x: Tensor) -> Tensor:
    """A linear layer in float32, whatever its weights are kept in."""
    return nn.functional.linear(x, layer.weight.float(), layer.bias.float())


def _beside(states: list[Tensor]) -> Tensor:
    return torch.cat(states, 1) if len(states) > 1 else states[0]
