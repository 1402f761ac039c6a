"""The workloads' models in torch."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from keras_fastgrad.bench.peers import torch_blocks as blocks
from keras_fastgrad.bench.workloads import Data, Workload
from keras_fastgrad.bench.workloads.recommender import WIDTH


@dataclasses.dataclass(frozen=True)
class Built:
    """A model and how it is trained.

    Args:
        model: The module.
        loss: A function of its outputs and the targets.
        decays: Whether the optimizer is AdamW.
        is_lazy: Whether a table is trained by SparseAdam.
    """

    model: nn.Module
    loss: Callable[[Any, Any], torch.Tensor]
    decays: bool = False
    is_lazy: bool = False


def build(workload: Workload, data: Data) -> Built:
    """Builds the torch version of a workload.

    Args:
        workload: The workload.
        data: Its data, which gives the sizes.

    Raises:
        ValueError: If there is no torch version of it.
    """
    name = workload.name
    if name == "mlp":
        return Built(blocks.perceptron((784, 128, 10)), classes)
    if name == "multitask":
        return Built(_Multitask(), each_task)
    if name.startswith(("lstm", "gru")):
        return Built(_recurrent(name, data.x.shape[-1]), classes)
    if name.startswith("lm"):
        depth = 1 if name == "lm_wide" else 4
        return Built(blocks.LanguageModel(depth, _rows(workload)), tokens)
    if name == "recsys200m":
        return Built(_Sequence(_rows(workload)), clicks, is_lazy=True)
    if name == "recsys_pool":
        return Built(_Pool(_rows(workload)), clicks, is_lazy=True)
    if name == "cnn":
        return Built(blocks.ChannelsLast(blocks.convolutions()), classes)
    if name == "resnet50":
        return Built(blocks.ChannelsLast(blocks.resnet50(100)), classes)
    if name == "vit":
        return Built(blocks.VisionTransformer(), classes, decays=True)
    raise ValueError(
        f"There is no torch version of this workload. Received: {name!r}."
    )


def classes(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy of `[batch, classes]`, computed in float32."""
    return functional.cross_entropy(logits.float(), labels.long())


def tokens(logits: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """Cross entropy of `[batch, time, vocabulary]`."""
    return classes(logits.flatten(0, 1), words.flatten())


def each_task(logits: list, labels: list) -> torch.Tensor:
    """The sum of the tasks' cross entropies."""
    return torch.stack([classes(*pair) for pair in zip(logits, labels)]).sum()


def clicks(logits: torch.Tensor, clicked: torch.Tensor) -> torch.Tensor:
    """Binary cross entropy of `[batch, 1]`."""
    return functional.binary_cross_entropy_with_logits(logits.float(), clicked)


def _recurrent(name: str, features: int) -> nn.Module:
    cell = nn.LSTM if name.startswith("lstm") else nn.GRU
    units, depth = {"wide": (512, 1), "narrow": (64, 1)}.get(
        name.partition("_")[2], (128, 2)
    )
    return _Recurrent(cell(features, units, depth, batch_first=True), units)


class _Recurrent(nn.Module):
    def __init__(self, cell: nn.Module, units: int) -> None:
        super().__init__()
        self.cell = cell
        self.head = nn.Linear(units, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(x)[0][:, -1])


class _Multitask(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = blocks.perceptron((256, *[512] * 6), ends_linear=False)
        self.heads = nn.ModuleList(nn.Linear(512, 10) for _ in range(4))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        hidden = self.trunk(x)
        return [head(hidden) for head in self.heads]


class _Sequence(nn.Module):
    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, WIDTH, sparse=True)
        self.user = nn.GRU(WIDTH, 64, batch_first=True)
        self.score = blocks.perceptron((64 + WIDTH, 128, 1))

    def forward(self, x: dict[str, torch.Tensor]) -> torch.Tensor:
        user = self.user(self.table(x["history"]))[0][:, -1]
        item = self.table(x["item"]).flatten(1)
        return self.score(torch.cat([user, item], 1))


class _Pool(nn.Module):
    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(rows, WIDTH, mode="mean", sparse=True)
        self.score = blocks.perceptron((WIDTH, 128, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.score(self.table(x))


def _rows(workload: Workload) -> int:
    if workload.embedding_rows is None:
        raise ValueError(f"Workload {workload.name!r} has no embedding.")
    return workload.embedding_rows
