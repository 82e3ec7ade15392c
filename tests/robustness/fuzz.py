"""Runs cases: all of them once, then mixtures of them at random for as long as asked."""

import sys
import time
from collections import Counter

from .calls import cases
from .judge import BAD, judged

if __name__ == "__main__":
    want = sys.argv[1] if len(sys.argv) > 1 else ""
    counts = Counter()
    slow = []
    for name, case in cases().items():
        if want not in name:
            continue
        start = time.perf_counter()
        try:
            found = judged(case)
        except BaseException as error:
            import traceback

            print("HARNESS", name, type(error), error)
            traceback.print_exc(limit=-3)
            continue
        slow.append((time.perf_counter() - start, name))
        counts[found.verdict] += 1
        if found.verdict in BAD:
            print(found.verdict, name, "|", found.words[:300].replace("\n", " "), flush=True)
    print(counts, sum(s for s, _ in slow))
    print(*sorted(slow)[-15:], sep="\n")
