"""Writes numbered lines of 50 bytes as fast as it can: LINES of them, one write each."""

import os
import sys

for number in range(int(sys.argv[1])):
    os.write(1, f"{os.environ['RANK']}#{number}#{'x' * 40}\n".encode())
