"""Which optimizer has which rule."""

from collections.abc import Callable

import keras

from keras_fastgrad.optimizers.rows.by_rate import ADAGRAD, FTRL, LION
from keras_fastgrad.optimizers.rows.moments import ADAM, ADAMAX, NADAM
from keras_fastgrad.optimizers.rows.momentum import RMSPROP, SGD
from keras_fastgrad.optimizers.rows.rule import Rule

# Found by the function an optimizer updates with, so that a subclass keeps
# the rule until it overrides `update_step`. AdamW shares Adam's.
RULES: dict[Callable, Rule] = {
    keras.optimizers.SGD.update_step: SGD,
    keras.optimizers.RMSprop.update_step: RMSPROP,
    keras.optimizers.Adam.update_step: ADAM,
    keras.optimizers.Adamax.update_step: ADAMAX,
    keras.optimizers.Nadam.update_step: NADAM,
    keras.optimizers.Adagrad.update_step: ADAGRAD,
    keras.optimizers.Ftrl.update_step: FTRL,
    keras.optimizers.Lion.update_step: LION,
}
