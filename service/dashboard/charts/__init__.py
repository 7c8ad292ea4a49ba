"""The charts of a job's page as columns of rounded numbers, whole or as what has come since; drawn by
`static/charts/`. Never a figure of Plotly: those for other users are `service.api.figures`."""
