"""From what `te.build` is asked for to the program that answers: requests, schedules, memory of inputs."""
