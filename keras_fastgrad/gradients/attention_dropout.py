"""Which weights dropout keeps, drawn again for any part of them."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

_PHILOX = 1


class Draws(NamedTuple):
    """What `tf.nn.experimental.stateless_dropout` keeps of a tensor.

    Its random numbers come in groups, each a function of the seed and of the
    group's number (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3,
    2011, on Philox), so those of a part need none of the others.

    Args:
        seed: Two integers, as of TensorFlow's stateless functions.
        rate: Share that is left out, from 0 up to but not 1.
        dtype: That of the tensor, in which the numbers are drawn.
    """

    seed: tf.Tensor
    rate: float
    dtype: tf.DType

    def part(
        self, start: int | tf.Tensor, shape: Sequence[int | tf.Tensor]
    ) -> tf.Tensor:
        """What is kept of a part of the flat tensor, `True` where it is.

        Args:
            start: The first element of the part.
            shape: That of the part, whose elements lie together.
        """
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=self.seed)
        # A group is 128 random bits; float64 takes 64, all others 32.
        group = 2 if self.dtype == tf.float64 else 4
        start = tf.cast(start, tf.int64)
        size = tf.reduce_prod(tf.stack(shape))
        skipped = tf.cast(start // group, tf.uint64)
        drawn = tf.raw_ops.StatelessRandomUniformV2(
            shape=[size + group],
            key=key,
            counter=counter + tf.stack([skipped, tf.zeros_like(skipped)]),
            alg=_PHILOX,
            dtype=self.dtype,
        )
        own = tf.slice(drawn, [start % group], [tf.cast(size, tf.int64)])
        return tf.reshape(own, shape) >= self.rate
