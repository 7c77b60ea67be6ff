"""Write elastic_run/clusterd/pb/ from the .proto files: `make protos`.

Each module carries its file descriptor and makes its message classes in a pool of our own (clusterd/messages.py), so
that a foreign module with messages of the same names does no harm. protoc's stubs give the types.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

TOP = Path(__file__).parent.parent
FILES = {"recover": "protos/clusterd/recover.proto", "operator": "protos/operator.proto"}
WIDTH = 100

MODULE = '''"""Generated from {source} by `make protos`; do not edit."""

from elastic_run.clusterd import messages as _messages

FILE = (
{data}
)
_made = _messages.load(FILE)
METHODS = _made.methods
{names}
'''


def module(source: str, file: FileDescriptorProto) -> str:
    raw = file.SerializeToString()
    data = "\n".join(f"    {raw[i : i + WIDTH // 4]!r}" for i in range(0, len(raw), WIDTH // 4))
    names = "\n".join(f'{m.name} = _made.classes["{m.name}"]' for m in file.message_type)
    return MODULE.format(source=source, data=data, names=names)


def stub(source: str, text: str) -> str:
    """protoc's stub without its file descriptor, with our table of methods."""
    lines = [line for line in text.splitlines() if not line.startswith("DESCRIPTOR") and "_descriptor" not in line]
    head = f'"""Generated from {source} by `make protos`; do not edit."""\n'
    ours = "from elastic_run.clusterd.messages import Method\n\nFILE: bytes\nMETHODS: dict[str, Method]\n"
    first = next(i for i, line in enumerate(lines) if line.startswith("class "))
    return "\n".join([head, *lines[:first], ours, *lines[first:], ""])


def main(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name, source in FILES.items():
        with tempfile.TemporaryDirectory() as scratch:
            path = TOP / source
            words = [f"-I{path.parent}", f"--descriptor_set_out={scratch}/set", f"--pyi_out={scratch}", path.name]
            subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words], check=True)
            (file,) = FileDescriptorSet.FromString(Path(scratch, "set").read_bytes()).file
            (target / f"{name}.py").write_text(module(source, file))
            (target / f"{name}.pyi").write_text(stub(source, Path(scratch, f"{name}_pb2.pyi").read_text()))
    (target / "__init__.py").write_text('"""Generated messages, one module for each .proto file."""\n')


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TOP / "elastic_run" / "clusterd" / "pb")
