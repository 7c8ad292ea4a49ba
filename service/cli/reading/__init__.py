"""Commands that show what there is: a job, its trials, workloads, search spaces. Never one that changes anything."""
