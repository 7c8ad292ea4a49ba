"""The charts of a job's page, point by point and as a whole."""
