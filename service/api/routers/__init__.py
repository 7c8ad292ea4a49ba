"""One router per resource; those of jobs and of trials in folders of their own. Never SQL, and never a decision."""
