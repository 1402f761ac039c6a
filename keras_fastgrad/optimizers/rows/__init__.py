"""Embedding tables that are read and updated by the row."""
