"""Error bars, diagnostics, statuses, and the verdict: which mean is reported, and why."""
