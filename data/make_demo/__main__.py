"""`python -m data.make_demo`, after `apt-get install espeak-ng`: make the demo corpus again.

`--ceiling N` prints how well the label can be told from the cues of N newly drawn clips of each
label and from the records in the folder of `--out` (data/README.md quotes it).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from data.make_demo.corpus import DEMO, SEED, make_corpus
from data.make_demo.delivery import cue_ceiling, record_ceiling


def main() -> None:
    parser = argparse.ArgumentParser(description="Make data/demo from its hand-written lines.")
    parser.add_argument("-o", "--out", type=Path, default=DEMO, help="folder to write to")
    parser.add_argument("--seed", default=SEED, help="another one draws a corpus of the same kind")
    parser.add_argument(
        "--ceiling", type=int, metavar="N", help="write nothing, only print: N clips a label"
    )
    options = parser.parse_args()
    if options.ceiling:
        ceilings = cue_ceiling(options.ceiling) | record_ceiling(options.out)
        for name, accuracy in ceilings.items():
            print(f"{name}: {accuracy:.3f}")
        return
    make_corpus(DEMO / "lines.toml", options.out, options.seed)


if __name__ == "__main__":
    main()
