"""Computes a step in another precision, for as long as it is traced.

A layer reads its policy each time it is called, so a policy that stands only
while the step is traced is all the step needs. Whoever looks at the model
afterwards, to save it or to predict, finds the policies it was built with.
"""

import contextlib
from collections.abc import Iterator

import keras

from keras_fastgrad._keras import Functional, layers_of

_SWITCHABLE = ("float32", "mixed_bfloat16", "mixed_float16")


@contextlib.contextmanager
def computing_in(model: keras.Model, precision: str | None) -> Iterator[None]:
    """While the context is open, layers compute in `precision`.

    Switched are the layers whose policy is the model's own; one that was
    given another keeps it, and so do the layers that make the outputs of a
    Functional or Sequential model, which compute in float32. Variables are
    float32 under all three policies and are not touched.

    Args:
        model: The model about to be traced.
        precision: A policy name, or `None` to leave everything as it is.
    """
    if precision is None:
        yield
        return
    own = model.dtype_policy
    lowered = keras.DTypePolicy(precision)
    before = {layer: layer.dtype_policy for layer in layers_of(model)}
    heads = _output_layers(model)
    try:
        for layer, policy in before.items():
            if policy.name == own.name and policy.name in _SWITCHABLE:
                in_head = layer in heads
                layer.dtype_policy = (
                    keras.DTypePolicy("float32") if in_head else lowered
                )
        yield
    finally:
        for layer in layers_of(model):
            if layer in before:
                layer.dtype_policy = before[layer]
            elif layer.dtype_policy is lowered:
                # Made while tracing, with the policy of its parent.
                layer.dtype_policy = own


def _output_layers(model: keras.Model) -> set[keras.layers.Layer]:
    if isinstance(model, keras.Sequential):
        return {model.layers[-1]} if model.layers else set()
    if isinstance(model, Functional):
        return {tensor._keras_history.operation for tensor in model.outputs}
    return set()
