"""Whole-tensor operations (placeholder while being written)."""
