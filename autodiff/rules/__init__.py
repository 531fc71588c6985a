"""The derivative of each kind of stage, reduction and operation."""
