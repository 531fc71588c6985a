"""Kernels as their users call them: arguments, aliases, results in place, reports, exports, other compilers."""
