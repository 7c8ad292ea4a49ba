"""Float64 transcriptions of other packages' recurrences, for tests of scripts that we write for packages that the tests
do not install. Each has the names of its package that such a script imports, and says what it leaves out."""
