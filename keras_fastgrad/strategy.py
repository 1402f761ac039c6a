"""How a step is computed: the fields of a strategy and what each promises.

Nothing here touches a model: what follows from a strategy for one is said in
`resolution`.
"""

import dataclasses
from typing import Any

import keras

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
PRESETS = (False, True, "exact", "fast")
SPARSE_UPDATES = ("auto", "dense", "deferred", "lazy")
# Ops that `gradients` may name.
OPS: tuple[str, ...] = (
    "attention",
    "batch_norm",
    "gelu",
    "group_norm",
    "gru",
    "layer_norm",
    "linear_cross_entropy",
    "lstm",
    "mish",
    "rms_norm",
    "silu",
)

# Fields whose machinery is not built yet, with the values that need none.
NOT_BUILT: dict[str, tuple[Any, ...]] = {
    "accumulate_steps": (1,),
    "accumulate_batches": (1,),
    "rematerialize": (None,),
    "loss_scale": ("dynamic",),
}


@keras.saving.register_keras_serializable(package="keras_fastgrad")
@dataclasses.dataclass(frozen=True)
class Strategy:
    """One way to compute a training step.

    A strategy is a value: frozen, comparable, saved with the model. Its
    defaults train as Keras does. Of the fields of this version, `precision`
    and `sparse_update="lazy"` train otherwise, and `jit_compile` where dropout
    and the like draw.

    Example:
    >>> import keras_fastgrad as fg
    >>> strategy = fg.Strategy(steps_per_execution=32)
    >>> print(strategy)
    steps_per_execution=32
    >>> fg.Strategy.parse("steps_per_execution=32") == strategy
    True

    Args:
        jit_compile: Compile the step with XLA: `True`, `False`, or `"auto"`,
            which takes what `compile(jit_compile=...)` came to. A model with
            a layer that XLA cannot compile runs as a plain graph, and
            `explain()` names the layer. Exact, except where a layer draws
            random numbers: XLA draws others from the same seed. Defaults to
            `"auto"`.
        precision: Compute dtype of the training step: `"float32"`,
            `"mixed_bfloat16"`, `"mixed_float16"`, or `None` for the policies
            the layers were built with. Weights stay float32. Evaluation and
            prediction keep the layers' own policies. Not exact: bfloat16
            keeps 8 bits of mantissa, so expect losses within about 2 % of
            float32's. Defaults to `None`.
        gradients: Custom gradients: `"auto"` (all), `"keras"` (none), or a
            set of op names. Exact, to float32 rounding. Defaults to `"auto"`.
        optimizer_update: `"fused"` updates each variable with one kernel,
            `"keras"` with Keras's own chain of operations, `"auto"` with one
            kernel where the optimizer has one. Exact. Defaults to `"auto"`.
        sparse_update: How the table of an Embedding is updated. `"dense"`
            updates all its rows in each step. `"deferred"` reads and updates
            the rows that a batch names, and brings a row up to date when it
            is next read or the table is looked at: exact, to float32
            rounding. `"lazy"` never moves a row that no batch names: a usual
            variant of Adam and the like, not exact, and never chosen by
            itself. `"auto"` is deferred for large tables whose optimizer
            allows it, else dense. All sum the parts of a row before the
            update. Together with `optimizer_update="keras"`, `"dense"` leaves
            it to Keras as it is: stock Keras's own numbers, which differ
            where an id repeats in a batch. Defaults to `"auto"`.
        accumulate_steps: Micro-batches a step is split into. Only 1 in this
            version. Defaults to 1.
        accumulate_batches: Batches gathered into one update. Only 1 in this
            version. Defaults to 1.
        rematerialize: Layers whose activations are computed again instead of
            kept. Only `None` in this version. Defaults to `None`.
        steps_per_execution: Training steps run by one call from Python: an
            int of at least 1, or `"auto"`, which in this version is what
            `compile(steps_per_execution=...)` was given. Exact; batch hooks
            of callbacks are called once per execution. Defaults to `"auto"`.
        loss_scale: Loss scale in float16. Only `"dynamic"` in this version:
            Keras's `LossScaleOptimizer`. Defaults to `"dynamic"`.

    Raises:
        ValueError: If a field has a value that is not allowed, or that this
            version cannot do yet.
    """

    jit_compile: bool | str = "auto"
    precision: str | None = None
    gradients: str | frozenset[str] = "auto"
    optimizer_update: str = "auto"
    sparse_update: str = "auto"
    accumulate_steps: int = 1
    accumulate_batches: int = 1
    rematerialize: str | tuple[str, ...] | None = None
    steps_per_execution: int | str = "auto"
    loss_scale: str | float | None = "dynamic"

    def __post_init__(self) -> None:
        self._require("jit_compile", ("auto", True, False))
        self._require("precision", (None, *PRECISIONS))
        self._require("optimizer_update", ("auto", "keras", "fused"))
        self._require("sparse_update", SPARSE_UPDATES)
        self._take_gradients()
        for field, neutral in NOT_BUILT.items():
            if not _is_one_of(getattr(self, field), neutral):
                raise ValueError(
                    f"Strategy field `{field}` takes {_listed(neutral)} in "
                    "this version; the machinery for other values is not "
                    f"built yet. Received: {field}={getattr(self, field)!r}."
                )
        steps = self.steps_per_execution
        if steps != "auto" and (
            isinstance(steps, bool) or not isinstance(steps, int) or steps < 1
        ):
            raise ValueError(
                "Strategy field `steps_per_execution` must be 'auto' or an "
                f"int of at least 1. Received: steps_per_execution={steps!r}."
            )

    def _require(self, field: str, allowed: tuple[Any, ...]) -> None:
        value = getattr(self, field)
        if not _is_one_of(value, allowed):
            raise ValueError(
                f"Strategy field `{field}` must be one of {_listed(allowed)}. "
                f"Received: {field}={value!r}."
            )

    def _take_gradients(self) -> None:
        if _is_one_of(self.gradients, ("auto", "keras")):
            return
        named = self.gradients
        if not isinstance(named, (set, frozenset, tuple, list)) or not all(
            _is_one_of(name, OPS) for name in named
        ):
            raise ValueError(
                "Strategy field `gradients` must be 'auto', 'keras' or a set "
                f"of names of {_listed(OPS)}. Received: gradients={named!r}."
            )
        object.__setattr__(self, "gradients", frozenset(named))

    def __str__(self) -> str:
        changed = [
            f"{field.name}={_text_of(getattr(self, field.name))}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        return ", ".join(changed) or "default"

    @classmethod
    def parse(cls, text: str) -> "Strategy":
        """Reads a strategy from its short line, as `str()` prints it.

        Args:
            text: `field=value` pairs, separated by commas, or `default`.

        Returns:
            The strategy.

        Raises:
            ValueError: If a field is not known or its value not allowed.
        """
        values: dict[str, Any] = {}
        known = [field.name for field in dataclasses.fields(cls)]
        for pair in text.replace(" ", "").split(","):
            if pair in ("", "default"):
                continue
            name, _, value = pair.partition("=")
            if name not in known:
                raise ValueError(
                    f"A strategy is spelled 'field=value,...' with the fields "
                    f"{_listed(known)}. Received: {pair!r}."
                )
            values[name] = _value_of(value)
            if name == "gradients" and value not in ("auto", "keras"):
                values[name] = frozenset(value.split("+"))
        return cls(**values)

    def get_config(self) -> dict[str, Any]:
        """The fields as a dict that `from_config` takes."""
        config = dataclasses.asdict(self)
        if isinstance(self.gradients, frozenset):
            config["gradients"] = sorted(self.gradients)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Strategy":
        """The strategy whose `get_config` gave `config`."""
        return cls(**config)


@keras.saving.register_keras_serializable(package="keras_fastgrad")
@dataclasses.dataclass(frozen=True)
class SavedFlag:
    """The flag of `compile` as it is saved with a model.

    It is saved in the place of `auto_scale_loss`, which Keras does not save
    and whose default it stands for: `clone_model` makes a plain
    `keras.Sequential` of a `FastGradSequential` and compiles it with what was
    saved, so no argument may be there that Keras does not know.

    Args:
        flag: A value of `compile(fastgrad=...)`.
    """

    flag: Any

    def __bool__(self) -> bool:
        return True

    def get_config(self) -> dict[str, Any]:
        """The flag, serialized."""
        return {"flag": keras.saving.serialize_keras_object(self.flag)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "SavedFlag":
        """The flag whose `get_config` gave `config`."""
        return cls(keras.saving.deserialize_keras_object(config["flag"]))


def as_strategy(flag: Any) -> Strategy:
    """The strategy behind a value of `compile(fastgrad=...)`.

    Args:
        flag: `False`, `True`, `"exact"`, `"fast"` or a `Strategy`.

    Returns:
        The strategy.

    Raises:
        ValueError: If `flag` is none of these.
    """
    if isinstance(flag, Strategy):
        return flag
    if not _is_one_of(flag, PRESETS):
        raise ValueError(
            f"`fastgrad` must be one of {_listed(PRESETS)} or a "
            f"keras_fastgrad.Strategy. Received: fastgrad={flag!r}."
        )
    return KERAS if flag is False else EXACT


def keeps_slices(strategy: Strategy) -> bool:
    """Tells whether sparse gradients reach the optimizer as Keras makes them.

    Only the pair `sparse_update="dense"`, `optimizer_update="keras"` asks for
    it, and it has to be asked of the strategy as given: `resolve` turns an
    `"auto"` update into `"keras"` where no kernel exists.
    """
    return (strategy.sparse_update, strategy.optimizer_update) == (
        "dense",
        "keras",
    )


def _is_one_of(value: Any, allowed: tuple[Any, ...]) -> bool:
    # 1 == True, and an array compares by element: the type has to agree too.
    return any(
        type(value) is type(candidate) and value == candidate
        for candidate in allowed
    )


def _listed(values: Any) -> str:
    return ", ".join(
        repr(value) if not isinstance(value, str) else f"'{value}'"
        for value in values
    )


def _text_of(value: Any) -> str:
    return "+".join(sorted(value)) if isinstance(value, frozenset) else value


def _value_of(text: str) -> Any:
    literals = {"true": True, "false": False, "none": None}
    if text.lower() in literals:
        return literals[text.lower()]
    return int(text) if text.isdigit() else text


EXACT = Strategy()
KERAS = Strategy(
    gradients="keras", optimizer_update="keras", sparse_update="dense"
)
