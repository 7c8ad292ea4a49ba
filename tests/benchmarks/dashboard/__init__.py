"""What `dashboard_page` measures with: a job as large as wanted, and a browser that looks at its page."""
