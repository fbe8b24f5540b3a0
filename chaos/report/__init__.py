"""The report of a run: one HTML file that opens anywhere, offline, and that a person understands.

    path = write_report(run_dir)        # run_dir/report.html

In reading order: `rows`, `series` and `data` turn records into series (pure), `availability` and `ladder` are two views
of their own, `budgets` and `verdicts` read result.json, `missing` says what is not there, `story` makes sentences,
`lanes_table` puts the lanes side by side, `figure`, `plots`, `plots_world` and `plots_rows` make Plotly JSON, `page`
puts all of it into template.html.j2 with style.css and report.js. A run whose files are missing or torn has a report
too, which says so.
"""

from chaos.report.page import write_report

__all__ = ["write_report"]
