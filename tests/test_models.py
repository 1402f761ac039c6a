"""Every way to a FastGrad model, and what Keras can do with one."""

import copy

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from training import assert_same_training, distance, train
from zoo import FAST, STOCK, ZOO

import keras_fastgrad as fg

X = np.random.default_rng(3).standard_normal((24, 6)).astype("float32")
Y = X[:, :1] - X[:, 1:2]


def functional(cls=fg.FastGradModel):
    inputs = keras.Input((6,))
    hidden = layers.Dense(4, activation="tanh")(inputs)
    return cls(inputs, layers.Dense(1)(hidden))


@keras.saving.register_keras_serializable(package="tests")
class Linear(fg.FastGradModel):
    def __init__(self, units=1, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.score = layers.Dense(units)

    def build(self, input_shape):
        self.score.build(input_shape)

    def call(self, x):
        return self.score(x)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


class OwnStep(keras.Model):
    def train_step(self, data):
        logs = super().train_step(data)
        return {**logs, "mine": tf.constant(7.0)}


def fits(model):
    model.compile(keras.optimizers.Adam(0.05), "mse")
    losses = model.fit(X, Y, epochs=8, verbose=0).history["loss"]
    return losses[-1] < losses[0] and model.fastgrad.telemetry()["steps"] == 8


def test_functional_use_leaves_the_class_as_it_was():
    before = fg.FastGradModel.__bases__
    assert isinstance(functional(), fg.FastGradModel)

    class Inside(fg.FastGradModel):
        def __init__(self):
            inputs = keras.Input((6,))
            super().__init__(inputs, layers.Dense(1)(inputs))

    class Bare(fg.FastGradModel):
        pass

    class BareAgain(Bare):
        pass

    inputs = keras.Input((6,))
    assert fits(Inside())
    assert fits(BareAgain(inputs, layers.Dense(1)(inputs)))
    assert fg.FastGradModel.__bases__ == before
    assert fits(Linear())
    assert not isinstance(Linear(), type(keras.Model(inputs, inputs)))


def test_subclass_of_a_subclass():
    class Deeper(Linear):
        def call(self, x):
            return super().call(x) * 2.0

    assert fits(Deeper())


def test_sequential_in_each_form():
    assert fits(fg.FastGradSequential([layers.Dense(1)]))
    assert fits(fg.FastGradSequential([keras.Input((6,)), layers.Dense(1)]))
    assert fits(fg.FastGradSequential([layers.Dense(1)], True, "named"))
    grown = fg.FastGradSequential()
    grown.add(layers.Dense(1))
    assert fits(grown)
    assert isinstance(grown, keras.Sequential)
    assert isinstance(grown, fg.FastGradModel)


def test_a_foreign_class_keeps_its_own_step():
    class Mixed(fg.FastGradMixin, OwnStep):
        pass

    inputs = keras.Input((6,))
    model = Mixed(inputs, layers.Dense(1)(inputs))
    model.compile("adam", "mse", fastgrad=fg.Strategy(steps_per_execution=5))
    history = model.fit(X, Y, batch_size=4, epochs=2, verbose=0).history
    assert history["mine"] == [7.0, 7.0]
    assert model.fastgrad.telemetry()["steps"] == 12
    assert int(model.optimizer.iterations) == 12


def test_a_foreign_step_gets_the_fused_update():
    class Mixed(fg.FastGradMixin, OwnStep):
        pass

    def build(cls):
        def make():
            inputs = keras.Input((6,))
            return cls(inputs, layers.Dense(1)(inputs))

        return make

    make = lambda: keras.optimizers.Adam(0.01, amsgrad=True)  # noqa: E731
    stock = train(build(OwnStep), (X, Y), make(), loss="mse")
    ours = train(build(Mixed), (X, Y), make(), loss="mse")
    assert_same_training(stock, ours)


def test_a_foreign_train_function_takes_the_steps_of_compile():
    class OwnFunction(keras.Model):
        def make_train_function(self, force=False):
            return super().make_train_function(force=force)

    class Mixed(fg.FastGradMixin, OwnFunction):
        pass

    inputs = keras.Input((6,))
    model = Mixed(inputs, layers.Dense(1)(inputs))
    strategy = fg.Strategy(steps_per_execution=5)
    model.compile("adam", "mse", fastgrad=strategy)
    model.fit(X, Y, batch_size=4, epochs=2, verbose=0)
    assert int(model.optimizer.iterations) == 12


def test_from_model_shares_layers_and_weights():
    resnet = keras.applications.ResNet50(
        weights=None, input_shape=(32, 32, 3), classes=5
    )
    resnet.layers[-1].trainable = False
    ours = fg.FastGradModel.from_model(resnet)
    assert ours.layers == resnet.layers
    assert len(ours.trainable_weights) == len(resnet.trainable_weights)
    ours.compile("sgd", "sparse_categorical_crossentropy")
    before = resnet.trainable_weights[0].numpy()
    images = np.random.default_rng(1).random((2, 32, 32, 3))
    ours.train_on_batch(images, np.array([0, 1]))
    assert distance(before, resnet.trainable_weights[0].numpy()) > 0

    sequential = keras.Sequential([keras.Input((6,)), layers.Dense(1)])
    ours = fg.FastGradModel.from_model(sequential)
    assert isinstance(ours, fg.FastGradSequential)
    assert ours.weights[0] is sequential.weights[0]
    assert fits(ours)


def test_from_model_refuses_what_it_would_lose():
    inputs = keras.Input((6,))
    model = OwnStep(inputs, layers.Dense(1)(inputs))
    with pytest.raises(ValueError, match=r"FastGradMixin, OwnStep"):
        fg.FastGradModel.from_model(model)


@pytest.mark.parametrize("make", [functional, Linear], ids=["graph", "class"])
def test_save_and_load_give_the_same_training(make, tmp_path):
    strategy = fg.Strategy(steps_per_execution=3, optimizer_update="fused")
    model = make()
    model.compile(
        keras.optimizers.Adam(0.02), "mse", metrics=["mae"], fastgrad=strategy
    )
    model.fit(X, Y, batch_size=4, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")

    assert type(loaded) is type(model)
    assert loaded.fastgrad.flag == strategy
    for one, other in zip(
        model.optimizer.variables, loaded.optimizer.variables
    ):
        assert distance(one.numpy(), other.numpy()) == 0
    for each in (model, loaded):
        each.fit(X, Y, batch_size=4, verbose=0, shuffle=False)
    assert_same_training(model, loaded, exactly=True)


@pytest.mark.parametrize("flag", [False, True, "exact", "fast"])
def test_the_flag_is_saved_as_it_was_given(flag, tmp_path):
    model = fg.FastGradSequential([keras.Input((6,)), layers.Dense(1)])
    model.compile("adam", "mse", fastgrad=flag)
    model.fit(X, Y, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.compiled and loaded.fastgrad.flag == flag


def test_the_strategy_in_use_is_the_one_saved(tmp_path):
    model = functional()
    model.compile("adam", "mse")
    model.fastgrad.use(fg.Strategy(steps_per_execution=2))
    model.fit(X, Y, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.fastgrad.flag == fg.Strategy(steps_per_execution=2)


def test_the_saved_file_of_an_off_model_is_keras_own(tmp_path):
    """Same weights and slots; the config differs in our class names alone."""
    import json
    import re
    import zipfile

    import h5py

    def saved(kit, name, **flag):
        keras.utils.clear_session()
        member = ZOO["two_inputs"]
        model = train(
            lambda: member.build(kit),
            member.data(),
            "adam",
            **member.compile(),
            **flag,
        )
        model.save(tmp_path / name)
        with zipfile.ZipFile(tmp_path / name) as archive:
            archive.extract("model.weights.h5", tmp_path / f"{name}.h5")
            config = json.loads(archive.read("config.json"))
        values = {}
        with h5py.File(tmp_path / f"{name}.h5" / "model.weights.h5") as file:
            file.visititems(
                lambda path, item: (
                    values.__setitem__(path, item[()])
                    if isinstance(item, h5py.Dataset)
                    else None
                )
            )
        return config, values

    stock, stock_values = saved(STOCK, "stock.keras")
    ours, our_values = saved(FAST, "ours.keras", fastgrad=False)
    assert list(stock_values) == list(our_values)
    for path, value in stock_values.items():
        assert np.array_equal(value, our_values[path]), path
    saved_flag = ours["compile_config"].pop("auto_scale_loss")
    assert saved_flag["config"]["flag"] is False
    for config in (stock, ours):
        for field in ("module", "class_name", "registered_name"):
            config.pop(field)
        config["config"].pop("name")
    shared = re.compile(r'"shared_object_id": \d+')  # an address
    stock, ours = (
        shared.sub("", json.dumps(config, indent=1)) for config in (stock, ours)
    )
    assert stock == ours


def test_clone_config_copy_and_export(tmp_path):
    model = functional()
    assert fits(model)
    clone = keras.models.clone_model(model)
    assert type(clone) is type(model) and fits(clone)
    revived = type(model).from_config(model.get_config())
    assert type(revived) is type(model) and fits(revived)
    copied = copy.deepcopy(model)
    assert type(copied) is type(model) and fits(copied)
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(tmp_path / "exported")
    served = exported.serve(X)
    assert distance(model.predict(X, verbose=0), served) < 1e-6


@pytest.mark.parametrize("flag", ["quick", 1, 0, None, [], {"a": 1}])
def test_a_wrong_flag_changes_nothing(flag):
    model = functional()
    model.compile("adam", "mse", fastgrad=fg.Strategy(steps_per_execution=2))
    optimizer = model.optimizer
    with pytest.raises(ValueError, match=r"'exact', 'fast' or a keras_fast"):
        model.compile("sgd", "mae", fastgrad=flag)
    with pytest.raises(ValueError, match=r"'exact', 'fast' or a keras_fast"):
        model.fastgrad.use(flag)
    assert model.optimizer is optimizer
    assert model.fastgrad.strategy.steps_per_execution == 2


def test_the_handle_before_compile():
    model = functional()
    assert model.fastgrad.strategy.optimizer_update == "keras"
    with pytest.raises(ValueError, match=r"needs a compiled model"):
        model.fastgrad.use(fg.Strategy())


@pytest.mark.parametrize("eager", [False, True])
def test_weights_of_samples_classes_and_tokens(eager):
    """`sample_weight`, `class_weight` and `mask`, also step by step."""
    member = ZOO["text"]
    weights = np.linspace(0.1, 2.0, 46)
    for fit in ({"sample_weight": weights}, {"class_weight": {0: 1, 1: 3}}):
        stock, ours = (
            train(
                lambda kit=kit: member.build(kit),
                member.data(),
                keras.optimizers.SGD(0.1),
                fit=fit,
                epochs=1,
                run_eagerly=eager,
                **member.compile(),
                **flag,
            )
            for kit, flag in (
                (STOCK, {}),
                (FAST, {"fastgrad": fg.Strategy(sparse_update="dense")}),
            )
        )
        assert_same_training(stock, ours)


def test_a_model_without_trainable_weights():
    model = fg.FastGradSequential([keras.Input((6,)), layers.Dense(1)])
    model.trainable = False
    model.compile("adam", "mse")
    before = model.get_weights()
    with pytest.warns(UserWarning, match="does not have any trainable"):
        model.fit(X, Y, verbose=0)
    assert distance(before[0], model.get_weights()[0]) == 0


def test_train_on_batch():
    runs = []
    for kit in (STOCK, FAST):
        keras.utils.set_random_seed(1)
        model = ZOO["mlp"].build(kit)
        model.compile("adam", **ZOO["mlp"].compile())
        x, y = ZOO["mlp"].data()
        logs = [model.train_on_batch(x, y) for _ in range(3)]
        weighted = model.train_on_batch(
            x, y, class_weight={0: 1.0, 1: 2.0}, return_dict=True
        )
        runs.append((logs, weighted, model.get_weights()))
    (logs, weighted, weights), (our_logs, our_weighted, our_weights) = runs
    assert distance(logs, our_logs) < 1e-6
    assert list(weighted) == list(our_weighted)
    assert max(map(distance, weights, our_weights)) < 1e-5


@pytest.mark.parametrize("kind", ["generator", "py_dataset", "dataset"])
@pytest.mark.parametrize("steps", [1, 4])
def test_every_kind_of_data(kind, steps):
    x, y = ZOO["mlp"].data()

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            part = slice(8 * index, 8 * index + 8)
            return x[part], y[part]

    def endless():
        while True:
            for index in range(6):
                yield Batches()[index]

    def data():
        if kind == "dataset":
            return tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
        return endless() if kind == "generator" else Batches()

    runs = []
    for kit in (STOCK, FAST):
        keras.utils.set_random_seed(1)
        model = ZOO["mlp"].build(kit)
        flag = {}
        if kit is FAST:
            flag = {"fastgrad": fg.Strategy(steps_per_execution=steps)}
        model.compile("sgd", **ZOO["mlp"].compile(), **flag)
        length = {"steps_per_epoch": 6} if kind == "generator" else {}
        model.fit(data(), epochs=2, verbose=0, shuffle=False, **length)
        runs.append(model)
    assert_same_training(*runs)
    assert int(runs[1].optimizer.iterations) == 12


def test_precision_stands_only_while_the_step_is_traced(tmp_path):
    seen = []

    class Spy(layers.Layer):
        def call(self, x):
            seen.append(self.compute_dtype)
            return x

    model = fg.FastGradSequential(
        [
            keras.Input((6,)),
            layers.Dense(4, "tanh"),
            layers.Dense(4, dtype="float64"),
            Spy(),
            layers.Dense(1),
        ]
    )
    policies = [layer.dtype_policy.name for layer in model.layers]
    model.compile(
        "sgd", "mse", fastgrad=fg.Strategy(precision="mixed_bfloat16")
    )
    seen.clear()
    model.fit(X, Y, verbose=0)
    assert set(seen) == {"bfloat16"}
    assert [layer.dtype_policy.name for layer in model.layers] == policies
    assert {w.dtype for w in model.layers[0].weights} == {"float32"}
    seen.clear()
    model.predict(X, verbose=0)
    assert set(seen) == {"float32"}


def test_precision_is_left_after_an_exception():
    class Broken(layers.Layer):
        def call(self, x):
            if self.compute_dtype == "bfloat16":
                raise RuntimeError("broken on purpose")
            return x

    model = fg.FastGradSequential(
        [keras.Input((6,)), layers.Dense(4), Broken(), layers.Dense(1)]
    )
    strategy = fg.Strategy(precision="mixed_bfloat16")
    model.compile("sgd", "mse", fastgrad=strategy)
    with pytest.raises(RuntimeError, match="broken on purpose"):
        model.fit(X, Y, verbose=0)
    assert {layer.dtype_policy.name for layer in model.layers} == {"float32"}
    assert "update_step" not in vars(model.optimizer)
    model.fastgrad.use("exact")
    assert len(model.fit(X, Y, verbose=0).history["loss"]) == 1


def test_float16_needs_a_loss_scale():
    model = functional()
    model.compile("adam", "mse")
    strategy = fg.Strategy(precision="mixed_float16")
    with pytest.raises(ValueError, match="LossScaleOptimizer"):
        model.fastgrad.use(strategy)
    assert model.fastgrad.flag is True
    model.compile("adam", "mse", fastgrad=strategy)
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    losses = model.fit(X, Y, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


def test_bfloat16_trains_near_float32():
    member = ZOO["mlp"]
    losses = {}
    for precision in (None, "mixed_bfloat16"):
        model = train(
            lambda: member.build(FAST),
            member.data(),
            keras.optimizers.Adam(0.01),
            fastgrad=fg.Strategy(precision=precision),
            **member.compile(),
        )
        losses[precision] = model.history.history["loss"][-1]
    assert losses["mixed_bfloat16"] != losses[None]
    assert distance(losses[None], losses["mixed_bfloat16"]) < 0.02
