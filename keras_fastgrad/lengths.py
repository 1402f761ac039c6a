"""Few lengths for many: what XLA compiles for a length is used again."""

from math import log

import tensorflow as tf


def rounded_up(length: tf.Tensor, least_bits: int) -> tf.Tensor:
    """`length` rounded up to one of four lengths in each octave.

    Args:
        length: An int32 scalar.
        least_bits: All lengths are multiples of two to this power.

    Returns:
        An int32 scalar, at most a quarter more than `length` where that is
        above four times the least length.
    """
    octave = tf.math.log(tf.cast(tf.maximum(length, 1), tf.float32)) / log(2.0)
    bits = tf.maximum(tf.cast(octave, tf.int32) - 2, least_bits)
    unit = tf.bitwise.left_shift(1, bits)
    return -(-length // unit) * unit
