"""Tools of `dashboard_page`: a job as large as wanted, and a browser that looks at its page."""
