"""The schedule of a GPU kernel: blocks and threads over the elements of each stage."""
