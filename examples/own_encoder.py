"""An image encoder of your own: strided convolutions, then the mean over the picture.

Name it in the run file, `network_settings: {vis_encode_type: "own_encoder:Strided"}`, and train here with PYTHONPATH=.
set and `--trust own_encoder`.
"""

import torch


class Strided(torch.nn.Module):
    def __init__(self, shape: tuple[int, int, int], settings) -> None:
        super().__init__()
        channels, _, _ = shape
        self.out_features = settings.image_units  # the width of what `forward` returns; palus asks for it
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(channels, 32, 5, stride=2),
            torch.nn.ReLU(),
            torch.nn.Conv2d(32, 64, 3, stride=2),
            torch.nn.ReLU(),
            torch.nn.Conv2d(64, self.out_features, 3, stride=2),
            torch.nn.ReLU(),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """images: [rows, channels, height, width], normalised -> [rows, out_features]."""
        return self.layers(images).mean((2, 3))

    def onnx(self, graph, x: str) -> str:
        """The same on the value x of an ONNX graph, so that the agent can be exported; returns the result's name."""
        for layer in self.layers:
            if isinstance(layer, torch.nn.Conv2d):
                x = graph.add("Conv", [x, graph.weight(layer.weight), graph.weight(layer.bias)], strides=[2, 2])
            else:
                x = graph.add("Relu", [x])
        return graph.add("ReduceMean", [x], axes=[2, 3], keepdims=0)
