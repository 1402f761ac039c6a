"""Measures Keras, its peers and this package in one run."""
