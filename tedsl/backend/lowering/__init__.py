"""Expressions and stages as functions of Halide."""
