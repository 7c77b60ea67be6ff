"""A DataLoader with two worker processes, started by argv[1]: spawn or fork."""

import sys

from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


if __name__ == "__main__":
    loader = DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])
    print("batches", [batch.tolist() for batch in loader], flush=True)
