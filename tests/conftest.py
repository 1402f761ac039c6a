"""What every test stands on: two logical CPUs, and no state from before."""

import keras
import pytest
import tensorflow as tf

# Has to happen before TensorFlow makes its devices.
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)


@pytest.fixture(autouse=True)
def fresh_keras():
    """Each test names its layers and draws its seeds from the start."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
