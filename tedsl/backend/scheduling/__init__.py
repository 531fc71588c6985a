"""A plan as directives on Halide's functions; schedules that Halide's autoschedulers or tuning found."""
