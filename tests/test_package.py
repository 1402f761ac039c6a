"""The public surface, the direction of imports, and a foreign backend."""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import keras_fastgrad as fg
from keras_fastgrad.strategy import OPS

ROOT = Path(fg.__file__).parent
PUBLIC = {
    "FastGradMixin",
    "FastGradModel",
    "FastGradSequential",
    "Strategy",
    "callbacks",
    "gradients",
    "layers",
}
# Of `gradients`, beside the ops that layers get by themselves.
BESIDE_OPS = {"check_gradient", "linear_top_k", "multitask", "swish"}
# A file may import from floors below its own, and from its own package.
FLOORS = (
    ("_startup", "_keras", "_tensorflow"),
    ("strategy", "telemetry", "lengths"),
    ("gradients", "optimizers", "precision", "trainable"),
    ("resolution", "layers"),
    ("explain",),
    ("step", "execution"),
    ("handle",),
    ("model",),
    ("callbacks", "reports"),
    ("__init__",),
    ("bench", "demo"),
    ("cli",),
    ("__main__",),
)
FLOOR_OF = {name: level for level, row in enumerate(FLOORS) for name in row}


def test_the_public_names():
    assert set(fg.__all__) == PUBLIC
    assert fg.callbacks.__all__ == ["StepTimeMonitor"]
    assert set(fg.gradients.__all__) == BESIDE_OPS | set(OPS)
    for name in PUBLIC:
        assert getattr(fg, name).__doc__


@pytest.mark.parametrize(
    "path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_imports_run_downward(path):
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            assert node.level == 0, f"{path}: a relative import"
            if module == "keras_fastgrad":
                targets = [alias.name for alias in node.names]
            elif module.startswith("keras_fastgrad."):
                targets = [module.split(".")[1]]
            else:
                continue
        elif isinstance(node, ast.Import):
            targets = [
                alias.name.split(".")[1] if "." in alias.name else "__init__"
                for alias in node.names
                if alias.name.split(".")[0] == "keras_fastgrad"
            ]
        else:
            continue
        for target in targets:
            floor = FLOOR_OF.get(target, FLOOR_OF["__init__"])
            assert target == part or floor < FLOOR_OF[part], (
                f"{path}: {part} imports {target}, which is not below it"
            )


@pytest.mark.parametrize(
    "private, home",
    [("keras.src", "_keras.py"), ("tensorflow.python", "_tensorflow.py")],
)
def test_private_parts_are_touched_in_one_file(private, home):
    for path in ROOT.rglob("*.py"):
        if path.name != home and "bench" not in path.parts:
            text = path.read_text().replace(f"`{private}`", "")
            assert private not in text, path


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_another_backend_is_refused_in_plain_words():
    # Keras's numpy backend imports jax and scipy. Without them, Keras is
    # made to say that it runs on numpy.
    if all(importlib.util.find_spec(name) for name in ("jax", "scipy")):
        done = run_python("import keras_fastgrad", KERAS_BACKEND="numpy")
    else:
        done = run_python(
            "import keras; keras.backend.backend = lambda: 'numpy';"
            "import keras_fastgrad"
        )
    assert done.returncode == 1
    error = done.stderr.strip().splitlines()[-1]
    assert error.startswith("ImportError: keras_fastgrad needs the TensorFlow")
    assert "'numpy'" in error
    assert "KERAS_BACKEND=tensorflow" in error


def test_importing_leaves_the_log_level_as_keras_does():
    # Keras imports jax where it is there, and jax sets a level of its own.
    code = (
        "import os; os.environ.pop('TF_CPP_MIN_LOG_LEVEL', None);"
        "import {}; print(os.environ.get('TF_CPP_MIN_LOG_LEVEL'))"
    )
    ours, keras_own = (
        run_python(code.format(name)).stdout.strip()
        for name in ("keras_fastgrad", "keras")
    )
    assert ours == keras_own != ""
    done = run_python(
        "import os, keras_fastgrad; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])",
        TF_CPP_MIN_LOG_LEVEL="1",
    )
    assert done.stdout.strip() == "1"
