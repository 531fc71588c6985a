"""JAX: operators on its arrays, and kernels that its compiled programs call."""
