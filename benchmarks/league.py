"""The league of published posteriors: how much each method gains in truth, from 3 to 1006 parameters.

    export OPENBLAS_NUM_THREADS=1 STEINCV_BENCH_CACHE=...
    python benchmarks/league.py sample [NAME ...]                 # NUTS, 10 sets of 4 x 500 draws each
    python benchmarks/league.py run [NAME ...]                    # methods on every set, restartable
    python benchmarks/league.py run --methods auto --baseline-source PATH      # the same with an earlier version
    python benchmarks/league.py table                             # results/league/league.csv, docs/league.md
    python benchmarks/league.py figure                            # results/league/league.png

More in docs/league.md.
"""

from league.command import main

if __name__ == "__main__":
    main()
