"""One router per resource; those of jobs and of their trials in rooms of their own. Never SQL, and never a decision."""
