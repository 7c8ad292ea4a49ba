"""The tuning service: HTTP API, SQL store, scheduler, dashboard and command line."""
