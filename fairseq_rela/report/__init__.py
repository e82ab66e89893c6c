"""Draw tables, figures and the page from the records of runs."""
