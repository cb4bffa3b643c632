"""The league of published posteriors: models, draws, methods and tables. See docs/league.md."""
