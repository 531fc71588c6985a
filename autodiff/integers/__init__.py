"""Linear forms, inequalities and matrices over the integers, exactly."""
