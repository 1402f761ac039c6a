"""Optimizer updates: fused kernels and sparse gradients."""
