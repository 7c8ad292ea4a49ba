"""The parameters of the API's lists: filters, times, and how much of each row is shown. Never the query itself."""
