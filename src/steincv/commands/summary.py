"""`steincv summary`: the table of a file of draws and scores, in the shape of ArviZ's."""

import argparse

from ..cli import parse_method
from ..report import printing, terminal
from ..report.store import plain_data
from ..tables.summary import summary


def run(options: argparse.Namespace) -> None:
    """Read the draws, and print mean, sd, median and interval of every parameter."""
    method = parse_method(options.method)
    with terminal.working("fitting control variates"):
        table = summary(
            options.file,
            var_names=options.var_names,
            stat_focus=options.stat_focus,
            ci_prob=options.ci_prob,
            method=method,
            seed=options.seed,
        )
    if options.json:
        frame = table.frame()
        rows = [{"label": label, **row} for label, row in zip(frame.index, frame.to_dict("records"), strict=True)]
        printing.print_json({"outputs": plain_data(rows)})
        return
    terminal.console().print(repr(table), markup=False, soft_wrap=True)
