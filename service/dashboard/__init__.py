"""Server-rendered pages and the files they load. Never a change or a chart's data: both are the API's."""
