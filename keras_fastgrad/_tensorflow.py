"""Every touch of a private or version-dependent part of TensorFlow.

The rest of the package imports these names and never reaches into
`tensorflow.python` itself. Checked against TensorFlow 2.21.0.
"""

import contextlib
import platform
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.eager.context import eager_mode
from tensorflow.python.eager.record import stop_recording
from tensorflow.python.eager.tape import variable_accessed
from tensorflow.python.framework.config import is_op_determinism_enabled
from tensorflow.python.ops.control_flow_v2_func_graphs import (
    CondBranchFuncGraph,
    WhileBodyFuncGraph,
    WhileCondFuncGraph,
)

__all__ = [
    "in_control_flow",
    "is_watched",
    "outside_graphs",
    "stop_recording",
    "touch",
    "variable_accessed",
    "watched",
    "watched_in_graph",
    "xla_works",
]


def xla_works() -> bool:
    """Tells whether XLA can compile on this machine, with these settings."""
    if is_op_determinism_enabled():
        return False
    is_apple = platform.system() == "Darwin" and platform.machine() == "arm64"
    return not (is_apple and tf.config.list_physical_devices("GPU"))


@contextlib.contextmanager
def outside_graphs() -> Iterator[None]:
    """While the context is open, operations run at once.

    Also where a graph is being built, one of TensorFlow 1 among them, which
    is what a SavedModel is written in.
    """
    with tf.init_scope(), eager_mode():
        yield


class _Watched(keras.Variable):
    """Calls a function before its value is read or written from outside."""

    @property
    def value(self) -> Any:
        self.__dict__["_before_access"]()
        return super().value

    def _direct_assign(self, value: Any) -> None:
        self.__dict__["_before_access"]()
        super()._direct_assign(value)


def is_watched(variable: Any) -> bool:
    """Tells whether somebody watches a Keras variable."""
    return isinstance(variable, _Watched)


def touch(variable: Any) -> None:
    """Calls whoever watches `variable`, as an access would."""
    if is_watched(variable):
        variable.__dict__["_before_access"]()


def in_control_flow(outermost: Any) -> bool:
    """Tells whether a branch or a loop is being built inside of a graph.

    Args:
        outermost: The graph.
    """
    graph = tf.compat.v1.get_default_graph()
    while graph is not None and graph is not outermost:
        if isinstance(
            graph, (CondBranchFuncGraph, WhileBodyFuncGraph, WhileCondFuncGraph)
        ):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


@contextlib.contextmanager
def watched(
    variable: keras.Variable, before: Callable[[], None]
) -> Iterator[None]:
    """While the context is open, `before` is called ahead of each access.

    Args:
        variable: A Keras variable of the plain class. It keeps its identity.
        before: Called before its value is read or assigned through Keras.
    """
    plain = type(variable)
    variable.__dict__["_before_access"] = before
    variable.__class__ = _Watched
    try:
        yield
    finally:
        variable.__class__ = plain
        del variable.__dict__["_before_access"]


_READS = ("_read_variable_op", "sparse_read", "gather_nd")
_WRITES = (
    "assign",
    "assign_add",
    "assign_sub",
    *(
        f"scatter_{kind}"
        for kind in ("add", "div", "max", "min", "mul", "sub", "update")
    ),
    "batch_scatter_update",
    "scatter_nd_add",
    "scatter_nd_sub",
    "scatter_nd_update",
)


@contextlib.contextmanager
def watched_in_graph(
    variable: tf.Variable, before: Callable[[bool], None]
) -> Iterator[None]:
    """While the context is open, graph code that uses `variable` is seen.

    Args:
        variable: A resource variable. What works on its `handle` is not seen.
        before: Called ahead of each operation that is added to a graph, with
            whether it writes.
    """
    plain = type(variable)

    def seen(name: str) -> Callable:
        method = getattr(plain, name)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            before(name in _WRITES)
            return method(self, *args, **kwargs)

        return call

    methods = {
        name: seen(name) for name in (*_READS, *_WRITES) if hasattr(plain, name)
    }
    variable.__class__ = type(plain.__name__, (plain,), methods)
    try:
        yield
    finally:
        variable.__class__ = plain
