"""The league of published posteriors: how much each method gains in truth, from 3 to 1006 parameters.

    export OPENBLAS_NUM_THREADS=1 STEINCV_BENCH_CACHE=...
    python benchmarks/league.py sample [NAME ...]                 # NUTS, 10 sets of 4 x 500 draws each
    python benchmarks/league.py run --label LABEL [NAME ...]      # every method on every set, restartable
    python benchmarks/league.py table                             # results/league.csv, a table and a picture

More in league/README.md.
"""

from league.command import main

if __name__ == "__main__":
    main()
