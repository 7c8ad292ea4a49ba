"""Commands that help to begin: a first job file, a look at the installation, completion. Never one about a job."""
