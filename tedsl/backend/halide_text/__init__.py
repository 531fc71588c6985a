"""What Halide writes, read: its lowered programs, its loops, its errors. What each form looks like stands here once."""
