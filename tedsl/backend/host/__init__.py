"""This machine: processors and targets, threads, runtimes, object files and files that are kept."""
