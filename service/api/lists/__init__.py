"""What lists of the API are asked for: filters, times, and how much of each row they tell. Never the query itself."""
