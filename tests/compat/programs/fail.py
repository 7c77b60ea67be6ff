"""Fails in the way that argv[1] names, in rank 1."""

import os
import signal
import sys
import time

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main() -> None:
    how = sys.argv[1]
    if os.environ["RANK"] != "1":
        time.sleep(60)
    if how == "text":
        sys.exit("a text")
    if how.isdigit():
        sys.exit(int(how))
    if how == "raise":
        raise ValueError("my own text")
    os.kill(os.getpid(), getattr(signal, how))


if __name__ == "__main__":
    main()
