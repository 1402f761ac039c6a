"""What weights the gradients of several tasks get, from their products.

All that is needed of gradients g_1, ..., g_n is G with G_ij = g_i . g_j. The
gradient of the trunk is then sum_k w_k g_k.
"""

import tensorflow as tf

from keras_fastgrad._tensorflow import xla_works

WEIGHTINGS = ("sum", "pcgrad", "mgda")
# Most steps towards the shortest combination, for each task.
_MOST = 200


# Each g_i starts as c_i = e_i, its coefficients over all gradients, so that
# its product with g_j is (c_i G)_j. Where that is negative (Yu et al., 2020,
# Algorithm 1),
#   g_i <- g_i - (g_i . g_j) / (g_j . g_j) g_j,  so
#   c_ij <- c_ij - (c_i G)_j / G_jj.
# All i go through the same order at once: g_j is not changed by it.
def pcgrad_weights(
    products: tf.Tensor, seed: tf.Tensor | None = None
) -> tf.Tensor:
    """The weights of gradients whose conflicts are taken off.

    Args:
        products: Those of the gradients with each other, `[tasks, tasks]`.
        seed: Draws an order for each task; `None` for that of the tasks.

    Returns:
        Weights of shape `[tasks]`.
    """
    tasks = products.shape[0]
    orders = tf.tile(tf.range(tasks)[None], [tasks, 1])
    if seed is not None:
        draws = tf.random.stateless_uniform([tasks, tasks], seed)
        orders = tf.argsort(draws, axis=1)
    kept = tf.eye(tasks, dtype=products.dtype)
    squares = tf.linalg.diag_part(products)
    for place in range(tasks):
        other = orders[:, place]
        inner = tf.reduce_sum(kept * tf.gather(products, other), -1)
        share = tf.math.divide_no_nan(inner, tf.gather(squares, other))
        is_own = other == tf.range(tasks)
        taken = tf.where(is_own, tf.zeros_like(share), tf.minimum(share, 0))
        hits = tf.one_hot(other, tasks, dtype=products.dtype)
        kept -= taken[:, None] * hits
    return tf.reduce_sum(kept, 0)


# The shortest convex combination, min w' G w over w >= 0 with sum w = 1.
# From w, weight is moved from the task a that has some and stands highest in
# G w to the task b that stands lowest. Along that way the minimum is at
#   t = (G w)_a - (G w)_b over G_aa - 2 G_ab + G_bb,
# or at w_a if that is less (the pairwise variant of Frank and Wolfe's method:
# Lacoste-Julien and Jaggi, 2015, which ends at a linear rate; of two tasks one
# step is the solution that Sener and Koltun give in closed form).
def _shortest(products: tf.Tensor) -> tf.Tensor:
    tasks = products.shape[0]
    # The scale of a loss drops out, and squares of large gradients stay small.
    largest = tf.reduce_max(tf.abs(products))
    scaled = tf.math.divide_no_nan(products, largest)
    enough = tf.constant(1e-6, products.dtype)
    lowest = tf.argmin(tf.linalg.diag_part(scaled))
    start = tf.one_hot(lowest, tasks, dtype=products.dtype)

    def pair(weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        heights = tf.linalg.matvec(scaled, weights)
        below = tf.constant(float("-inf"), products.dtype)
        high = tf.argmax(tf.where(weights > 0, heights, below))
        low = tf.argmin(heights)
        return high, low, heights[high] - heights[low]

    def goes_on(step: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        *_, gap = pair(weights)
        return (step < _MOST * tasks) & (gap > enough)

    def move(step: tf.Tensor, weights: tf.Tensor) -> tuple:
        high, low, gap = pair(weights)
        way = tf.one_hot(low, tasks, dtype=products.dtype) - tf.one_hot(
            high, tasks, dtype=products.dtype
        )
        curve = tf.tensordot(way, tf.linalg.matvec(scaled, way), 1)
        most = weights[high]
        length = tf.where(curve * most > gap, gap / curve, most)
        return step + 1, tf.maximum(weights + length * way, 0)

    _, weights = tf.while_loop(goes_on, move, (0, start))
    # A gradient that is not finite stays seen.
    return weights + 0 * largest


_compiled = tf.function(_shortest, jit_compile=True, autograph=False)


def mgda_weights(products: tf.Tensor) -> tf.Tensor:
    """The weights of the shortest convex combination of gradients.

    Args:
        products: Those of the gradients with each other, `[tasks, tasks]`.

    Returns:
        Weights of shape `[tasks]`, none negative, with the sum 1.
    """
    return _compiled(products) if xla_works() else _shortest(products)
