"""The page of a job, section by section. Never a trial's own page."""
