"""Server-rendered pages and chart data."""
