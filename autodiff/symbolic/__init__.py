"""Index inversion in sympy's words: `autodiff.invert`, and what `explain()` hands out. See the README of `autodiff`."""
