"""Proves a gradient: finite differences, and parity with a plain formula."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

# Elements looked at one by one to name the worst, at most.
_MOST_ELEMENTS = 2048


@dataclasses.dataclass(frozen=True)
class Finding:
    """One place where two values that should agree do not.

    Args:
        check: What was compared.
        index: Number of the input (of the output, for its values).
        element: Index of the element within it.
        expected: The value it should have.
        received: The value it has.
    """

    check: str
    index: int
    element: tuple[int, ...]
    expected: float
    received: float

    def __str__(self) -> str:
        return (
            f"{self.check} {self.index}, element {list(self.element)}: "
            f"expected {self.expected:.9g}, received {self.received:.9g}"
        )


@dataclasses.dataclass(frozen=True)
class GradientReport:
    """What `check_gradient` found.

    Args:
        compared: How many comparisons were made.
        findings: Those that failed, each with its worst element.
    """

    compared: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found wrong."""
        return not self.findings

    def __str__(self) -> str:
        if self.ok:
            return f"right in {self.compared} comparisons"
        wrong = f"{len(self.findings)} of {self.compared} comparisons failed"
        return "\n".join([wrong, *map(str, self.findings)])


def check_gradient(
    fn: Callable[..., Any],
    reference: Callable[..., Any] | None = None,
    inputs: Sequence[Any] = (),
    *,
    directions: int = 4,
    step: float = 1e-5,
    tolerance: float = 1e-6,
    parity_tolerance: float | None = None,
    seed: int = 0,
    raise_on_error: bool = True,
) -> GradientReport:
    """Checks the gradient of a function in two ways.

    In float64 it is compared with central differences along random
    directions, with a random upstream gradient. Where a reference is given,
    outputs and gradients of both are compared in the dtype of the inputs.

    Example:
    >>> import tensorflow as tf
    >>> from keras_fastgrad.gradients import check_gradient
    >>> x = tf.constant([[0.1, 2.0], [-1.0, 0.5]])
    >>> print(check_gradient(tf.nn.softmax, inputs=[x]))
    right in 4 comparisons

    Args:
        fn: Function of tensors that returns tensors in any structure.
        reference: A plain formula of the same. Defaults to `None`.
        inputs: What to call both with, tensors or arrays. Those of an integer
            or boolean dtype, and empty ones, have no gradient and stay as
            they are.
        directions: Random directions for each input. Defaults to 4.
        step: Distance of the central differences. Defaults to 1e-5.
        tolerance: Largest difference that passes in float64, relative to the
            size of the gradient. Defaults to 1e-6.
        parity_tolerance: The same for the reference, relative to the largest
            element. Defaults to 64 units in the last place.
        seed: Of the directions and upstream gradients. Defaults to 0.
        raise_on_error: Raise where something is wrong. Defaults to `True`.

    Returns:
        The report. It is true in `.ok`, and in words in `str()`.

    Raises:
        ValueError: If no input has a gradient.
        AssertionError: If something is wrong and `raise_on_error` is set.
    """
    tensors = [tf.convert_to_tensor(each) for each in inputs]
    if not any(_has_gradient(each) for each in tensors):
        raise ValueError(
            "`check_gradient` needs at least one input of a float dtype that "
            f"is not empty. Received: {[t.dtype.name for t in tensors]}."
        )
    rng = np.random.default_rng(seed)
    checks = _differences(fn, tensors, rng, directions, step, tolerance)
    if reference is not None:
        checks += _parity(fn, reference, tensors, rng, parity_tolerance)
    findings = tuple(each for each in checks if each is not None)
    report = GradientReport(len(checks), findings)
    if raise_on_error and not report.ok:
        raise AssertionError(str(report))
    return report


def _has_gradient(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_floating and tensor.shape.num_elements() != 0


def _outputs(fn: Callable, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    flat = keras.tree.flatten(fn(*tensors))
    return [out for out in flat if out.dtype.is_floating]


def _gradients(
    fn: Callable, tensors: Sequence[tf.Tensor], upstream: list[np.ndarray]
) -> tuple[list[tf.Tensor], list[np.ndarray | None]]:
    wanted = [each for each in tensors if _has_gradient(each)]
    with tf.GradientTape() as tape:
        tape.watch(wanted)
        outputs = _outputs(fn, tensors)
    found = tape.gradient(
        outputs,
        wanted,
        [tf.cast(u, out.dtype) for u, out in zip(upstream, outputs)],
    )
    dense = iter(
        None if each is None else tf.convert_to_tensor(each) for each in found
    )
    return outputs, [
        _values(next(dense), each) if _has_gradient(each) else None
        for each in tensors
    ]


def _values(gradient: tf.Tensor | None, of: tf.Tensor) -> np.ndarray:
    if gradient is None:
        return np.zeros(of.shape)
    return tf.cast(gradient, tf.float64).numpy()


def _differences(
    fn: Callable,
    tensors: list[tf.Tensor],
    rng: np.random.Generator,
    directions: int,
    step: float,
    tolerance: float,
) -> list[Finding | None]:
    exact = [
        tf.cast(each, tf.float64) if each.dtype.is_floating else each
        for each in tensors
    ]
    upstream = [rng.standard_normal(o.shape) for o in _outputs(fn, exact)]
    _, gradients = _gradients(fn, exact, upstream)

    def slope(index: int, direction: Any) -> float:
        def value(sign: float) -> float:
            moved = list(exact)
            moved[index] = exact[index] + sign * step * direction
            outputs = _outputs(fn, moved)
            return sum(
                float(np.sum(u * tf.cast(out, tf.float64).numpy()))
                for u, out in zip(upstream, outputs)
            )

        return (value(1.0) - value(-1.0)) / (2 * step)

    checks: list[Finding | None] = []
    for index, gradient in enumerate(gradients):
        if gradient is None:
            continue
        for _ in range(directions):
            direction = rng.standard_normal(gradient.shape)
            expected = slope(index, direction)
            received = float(np.sum(gradient * direction))
            norm = float(np.linalg.norm(gradient))
            size = max(abs(expected), norm, 1e-6)
            if abs(expected - received) <= tolerance * size:
                checks.append(None)
                continue
            checks.append(_worst_element(index, gradient, slope, rng))
    return checks


def _worst_element(
    index: int,
    gradient: np.ndarray,
    slope: Callable[[int, np.ndarray], float],
    rng: np.random.Generator,
) -> Finding:
    places = rng.permutation(gradient.size)[:_MOST_ELEMENTS]

    def difference(place: int) -> tuple[float, float]:
        direction = np.zeros(gradient.size)
        direction[place] = 1.0
        expected = slope(index, direction.reshape(gradient.shape))
        return expected, float(gradient.reshape(-1)[place])

    values = {int(place): difference(int(place)) for place in places}
    apart = {at: abs(one - other) for at, (one, other) in values.items()}
    worst = max(apart, key=lambda at: apart[at])
    element = tuple(int(i) for i in np.unravel_index(worst, gradient.shape))
    return Finding("finite difference of input", index, element, *values[worst])


def _parity(
    fn: Callable,
    reference: Callable,
    tensors: list[tf.Tensor],
    rng: np.random.Generator,
    tolerance: float | None,
) -> list[Finding | None]:
    shapes = [out.shape for out in _outputs(reference, tensors)]
    upstream = [rng.standard_normal(shape) for shape in shapes]
    outputs, gradients = _gradients(fn, tensors, upstream)
    plain, plain_gradients = _gradients(reference, tensors, upstream)
    if [out.shape for out in outputs] != shapes:
        raise ValueError(
            "`fn` and `reference` must return outputs of the same shapes. "
            f"Received: {[o.shape for o in outputs]} and {shapes}."
        )
    dtype = next(each.dtype for each in tensors if _has_gradient(each))
    bound = tolerance or 64 * float(np.finfo(dtype.as_numpy_dtype).eps)

    def compared(
        check: str, index: int, expected: np.ndarray, received: np.ndarray
    ) -> Finding | None:
        apart = np.abs(expected - received)
        # Also where one is not a number.
        if not apart.size or apart.max() <= bound * np.abs(expected).max():
            return None
        at = np.unravel_index(np.argmax(apart), apart.shape)
        element = tuple(int(i) for i in at)
        return Finding(
            check, index, element, float(expected[at]), float(received[at])
        )

    checks = [
        compared("value of output", i, _values(a, a), _values(b, b))
        for i, (a, b) in enumerate(zip(plain, outputs))
    ]
    checks += [
        compared("gradient of input", i, a, b)
        for i, (a, b) in enumerate(zip(plain_gradients, gradients))
        if a is not None and b is not None
    ]
    return checks
