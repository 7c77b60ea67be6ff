"""A worker whose torch DataLoader has two processes of its own, which hang behind the second batch."""

import os
import time
from pathlib import Path

from torch.utils.data import DataLoader, Dataset


class Slow(Dataset[int]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        time.sleep(100 if index > 3 else 0)
        return index


if __name__ == "__main__":
    for _batch in DataLoader(Slow(), batch_size=2, num_workers=2):
        Path(os.environ["UP"], os.environ["RANK"] + ".0").touch()
