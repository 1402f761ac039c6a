"""Callbacks that watch a training run."""

from keras_fastgrad.callbacks.step_time import StepTimeMonitor

__all__ = ["StepTimeMonitor"]
