"""Other frameworks: each bridge imports its own, when an array of it first meets an operator."""
