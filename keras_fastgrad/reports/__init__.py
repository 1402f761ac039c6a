"""Reads the rows of a bench run and draws them."""
