"""Numbers: the dtypes of the language as types of Halide, their casts and their mathematics."""
