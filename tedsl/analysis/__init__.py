"""Questions asked of the language: what operations compute, sizes, affine forms, bounds, work counts."""
