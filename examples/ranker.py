"""A ranker by subclass: one base class and one flag away from stock Keras.

python examples/ranker.py
"""

import keras
import numpy as np

import keras_fastgrad as fg


class Ranker(fg.FastGradModel):
    """Scores an item against the items a user has looked at."""

    def __init__(self, items: int, width: int = 32) -> None:
        super().__init__()
        self.table = keras.layers.Embedding(items, width)
        self.hidden = keras.layers.Dense(64, activation="relu")
        self.score = keras.layers.Dense(1, activation="sigmoid")

    def call(self, inputs: dict) -> keras.KerasTensor:
        seen = keras.ops.mean(self.table(inputs["seen"]), axis=1)
        wanted = self.table(inputs["item"])
        both = keras.ops.concatenate([seen, wanted], axis=-1)
        return self.score(self.hidden(both))


def visits(samples: int, items: int) -> tuple[dict, np.ndarray]:
    """Visits made up so that people look at what is like what they saw."""
    rng = np.random.default_rng(0)
    seen = rng.zipf(1.3, (samples, 10)).clip(1, items - 1)
    item = rng.zipf(1.3, samples).clip(1, items - 1)
    clicked = np.abs(np.log(seen).mean(axis=1) - np.log(item)) < 1.0
    return {"seen": seen, "item": item}, clicked.astype("float32")


def main() -> None:
    items = 2000
    x, y = visits(20_000, items)
    model = Ranker(items)
    model.compile("adam", "binary_crossentropy", metrics=["AUC"], fastgrad=True)
    model.fit(
        x, y, epochs=3, callbacks=[fg.callbacks.StepTimeMonitor()], verbose=2
    )
    print(model.fastgrad.explain())


if __name__ == "__main__":
    main()
