"""The routers of all pages; `service.server.app` takes them from here."""

from __future__ import annotations

from service.dashboard import documentation, log_in
from service.dashboard.charts import page as charts
from service.dashboard.cluster import page as cluster
from service.dashboard.compare import page as compare
from service.dashboard.job import page as job
from service.dashboard.job import trials as job_trials
from service.dashboard.job_list import page as job_list
from service.dashboard.new_job import page as new_job
from service.dashboard.recommendations import page as recommendations
from service.dashboard.recommendations import untuned
from service.dashboard.report import page as report
from service.dashboard.settings_page import page as settings_page
from service.dashboard.trial import output, prediction
from service.dashboard.trial import page as trial

ROUTERS = (
    job_list.router,
    new_job.router,  # before a job's page, as its address could be one
    job.router,
    report.router,
    charts.router,
    trial.router,
    job_trials.router,
    output.router,
    prediction.router,
    untuned.router,  # before a recommendation's page, as its address could be one
    recommendations.router,
    compare.router,
    log_in.router,
    cluster.router,
    settings_page.router,
    documentation.router,
)
