"""The progress of jobs, from what their trials have come to; that of jobs that have ended is remembered. Never what it
will take."""

from service.use_cases.progress.jobs import JobProgress, PhaseProgress, progress_of
from service.use_cases.progress.trials import Finding, TrialMemory

__all__ = ["Finding", "JobProgress", "PhaseProgress", "TrialMemory", "progress_of"]
