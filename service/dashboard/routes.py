"""The routers of all pages; `service.server.app` takes them from here."""

from __future__ import annotations

from service.dashboard import log_in
from service.dashboard.charts import page as charts
from service.dashboard.job import page as job
from service.dashboard.job_list import page as job_list
from service.dashboard.trial import output

ROUTERS = (
    job_list.router,
    job.router,
    charts.router,
    output.router,
    log_in.router,
)
