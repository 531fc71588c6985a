"""A complete plan cut into the kernels that one program becomes."""
