"""What the command `tedsl` does: one module for each subject, with `add` for its options and a function to run."""
