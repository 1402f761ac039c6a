"""Parts of the workloads' models in torch."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from keras_fastgrad.bench.workloads import text, vision


def perceptron(widths: Sequence[int], ends_linear: bool = True) -> nn.Module:
    """Linear layers of these widths with relu between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*(layers[:-1] if ends_linear else layers))


class ChannelsLast(nn.Module):
    """Takes images as Keras has them, `[batch, height, width, channels]`.

    The permuted view of such images is what torch calls channels last, so no
    number moves.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.to(memory_format=torch.channels_last)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits of the images."""
        return self.model(images.permute(0, 3, 1, 2))


def convolutions() -> nn.Module:
    """The layers of workload `cnn`."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


class _Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.path = nn.Sequential(
            nn.Conv2d(inputs, width, 1, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, outputs, 1),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.path(x) + self.shortcut(x))


def resnet50(classes: int) -> nn.Module:
    """ResNet50 with its stride in the first 1x1 convolution, as in Keras."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inputs = 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(depth):
            stride = 2 if stage and not block else 1
            layers.append(_Bottleneck(inputs, width, stride))
            inputs = 4 * width
    return nn.Sequential(
        *layers,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(inputs, classes),
    )


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, is_causal: bool) -> None:
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        # [3, batch, heads, length, width of a head]
        q, k, v = self.project(x).view(shape).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            q, k, v, is_causal=self.is_causal
        )
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, is_causal: bool) -> None:
        super().__init__()
        self.attention = _Attention(width, heads, is_causal)
        self.inner = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.norms = nn.ModuleList(
            nn.LayerNorm(width, eps=1e-3) for _ in range(2)
        )
        self.normalizes_first = not is_causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.norms
        if self.normalizes_first:
            x = x + self.attention(first(x))
            return x + self.inner(second(x))
        x = first(x + self.attention(x))
        return second(x + self.inner(x))


class LanguageModel(nn.Module):
    """The model of workloads `lm` and `lm_wide`."""

    def __init__(self, depth: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, text.WIDTH)
        self.blocks = nn.Sequential(
            *(_Block(text.WIDTH, text.HEADS, True) for _ in range(depth))
        )
        self.head = nn.Linear(text.WIDTH, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits `[batch, time, vocabulary]` of tokens `[batch, time]`."""
        return self.head(self.blocks(self.embedding(tokens)))


class VisionTransformer(nn.Module):
    """The model of workload `vit`."""

    def __init__(self) -> None:
        super().__init__()
        width, patch = vision.WIDTH, vision.PATCH
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.positions = nn.Parameter(0.05 * torch.randn(vision.PLACES, width))
        self.blocks = nn.Sequential(
            *(_Block(width, vision.VIT_HEADS, False) for _ in range(6))
        )
        self.head = nn.Linear(width, 100)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits of images `[batch, height, width, channels]`."""
        patches = self.patches(images.permute(0, 3, 1, 2))
        hidden = patches.flatten(2).transpose(1, 2) + self.positions
        return self.head(self.blocks(hidden).mean(1))
