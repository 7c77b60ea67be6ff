"""multiprocessing inside a worker."""

import multiprocessing


def square(x: int) -> int:
    return x * x


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print("squares", pool.map(square, range(4)), flush=True)
