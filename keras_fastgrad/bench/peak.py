"""The machine's peak: how fast it multiplies matrices.

`python -m keras_fastgrad.bench.peak` prints the peaks as JSON.
"""

import json
import time

import tensorflow as tf

from keras_fastgrad.bench.launch import run_module

_SIDE = 2048
_REPEATS = 8


def measured_apart(timeout: float = 120.0) -> dict[str, str]:
    """The peaks, measured in a process of its own.

    Args:
        timeout: Seconds to wait for it.

    Returns:
        A dict such as `{"peak float32": "450 GFLOP/s"}`; empty where the
        process failed.
    """
    try:
        output = run_module("keras_fastgrad.bench.peak", [], timeout)
    except RuntimeError:
        return {}
    return {
        f"peak {dtype}": f"{figure:.0f} GFLOP/s"
        for dtype, figure in json.loads(output).items()
    }


def gigaflops(dtype: str, side: int = _SIDE) -> float:
    """The best of several products of two square matrices, in GFLOP/s.

    Args:
        dtype: `"float32"` or `"bfloat16"`.
        side: Rows and columns of the matrices.
    """
    matrix = tf.cast(tf.random.normal((side, side), seed=1), dtype)
    product = tf.function(lambda: tf.matmul(matrix, matrix), autograph=False)
    product()
    best = float("inf")
    for _ in range(_REPEATS):
        began = time.perf_counter()
        product()[0, 0].numpy()
        best = min(best, time.perf_counter() - began)
    return 2 * side**3 / best / 1e9


if __name__ == "__main__":
    print(json.dumps({d: gigaflops(d) for d in ("float32", "bfloat16")}))
