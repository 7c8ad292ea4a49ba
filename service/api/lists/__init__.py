"""The questions to lists of the API: filters, times, and how much of each row they tell. Never the query itself."""
