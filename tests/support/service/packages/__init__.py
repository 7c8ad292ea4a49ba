"""Float64 transcriptions of other packages' recurrences, for tests of what is written for packages that the tests do
not install. Each has the names of its package that a written script imports, and says what it leaves out."""
