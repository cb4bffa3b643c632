"""The summary table: mean, sd, median and interval of every parameter, plain and controlled side by side."""
