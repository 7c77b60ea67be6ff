"""Importing this makes torchrun hand its jobs to elastic-run: `import elastic_run.api` before torch.distributed.run.

The only file that knows torch's own launcher. What torchrun has parsed is handed over as options of ours; this process
then becomes the launcher. Source: LaunchConfig and elastic_launch in torch/distributed/launcher/api.py (2.1 to 2.13).
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

TORCHS_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
_original: list[Any] = []


def patch_torch_methods() -> Callable[[], None]:
    """Let torch's launcher start elastic-run instead of its agent. A second call changes nothing.

    Jobs of functions (`elastic_launch(config, function)`) stay torch's own.

    Returns:
        A function that gives torch back what it had.

    Raises:
        ImportError: there is no torch.
    """
    from torch.distributed.launcher import api

    if not _original:
        _original.append(api.launch_agent)
        api.launch_agent = _launch_agent  # type: ignore[assignment]
    return _restore


def _restore() -> None:
    from torch.distributed.launcher import api

    if _original:
        api.launch_agent = _original.pop()


def _launch_agent(config: Any, entrypoint: Any, args: list[Any], **more: Any) -> Any:
    """In place of torch's: does not return where it can hand over."""
    words = options(config, entrypoint, args)
    if words is None:
        return _original[0](config, entrypoint, args, **more)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "elastic_run", *words])


def options(config: Any, entrypoint: Any, args: Sequence[Any]) -> list[str] | None:
    """The command line of ours for a LaunchConfig of torch's; None for the job of a function."""
    program = _program(entrypoint, [str(arg) for arg in args])
    if program is None:
        return None
    given: dict[str, Any] = {
        "nproc-per-node": config.nproc_per_node,
        "max-restarts": config.max_restarts,
        "role": config.role,
        "rdzv-id": _name(config),
        "log-line-prefix-template": getattr(config, "log_line_prefix_template", None),
        "local-addr": getattr(config, "local_addr", None),
        "shutdown-timeout": getattr(config, "shutdown_timeout", None),
        "event-log-handler": getattr(config, "event_log_handler", None),
        "numa-binding": _numa(getattr(config, "numa_options", None)),
        "signals-to-handle": _signals(getattr(config, "signals_to_handle", "")),
        **_nodes(config),
        **_logs(config),
    }
    words = [f"--{name}={value}" for name, value in given.items() if value not in (None, "")]
    if getattr(config, "virtual_local_rank", False):
        words.append("--virtual-local-rank")
    return [*words, *program]


def _program(entrypoint: Any, args: list[str]) -> list[str] | None:
    if callable(entrypoint):
        by_path = getattr(entrypoint, "__name__", "") == "run_script_path"
        return ["--run-path", "--", *args] if by_path else None
    if args[:2] == ["-u", "-m"]:
        return ["--module", "--", *args[2:]]
    if args[:1] == ["-u"] and entrypoint == os.environ.get("PYTHON_EXEC", sys.executable):
        return ["--", *args[1:]]
    return ["--no-python", "--", str(entrypoint), *args]


def _nodes(config: Any) -> Mapping[str, Any]:
    if config.max_nodes == 1:
        return {}
    same = config.min_nodes == config.max_nodes
    given = {"nnodes": config.max_nodes if same else f"{config.min_nodes}:{config.max_nodes}"}
    given |= {"rdzv-backend": config.rdzv_backend, "rdzv-endpoint": config.rdzv_endpoint}
    return {**given, "node-rank": config.rdzv_configs.get("rank")}


def _logs(config: Any) -> Mapping[str, Any]:
    specs = getattr(config, "logs_specs", None)
    if specs is None:  # torch 2.1: the fields are the config's own
        specs = config
    where = getattr(specs, "_root_log_dir", getattr(specs, "log_dir", None))
    ranks = getattr(specs, "_local_ranks_filter", None)
    return {
        "log-dir": _asked_for(where),
        "tee": _mapping(getattr(specs, "_tee", getattr(specs, "tee", None))),
        "redirects": _mapping(getattr(specs, "_redirects", getattr(specs, "redirects", None))),
        "local-ranks-filter": ",".join(map(str, sorted(ranks))) if ranks else None,
        "duplicate-stdout-filters": ",".join(getattr(config, "duplicate_stdout_filters", None) or ()),
        "duplicate-stderr-filters": ",".join(getattr(config, "duplicate_stderr_filters", None) or ()),
    }


def _asked_for(where: str | None) -> str | None:
    """torch makes a temporary directory where none was asked for; it is not needed."""
    made = where and os.path.dirname(where) == tempfile.gettempdir() and "torchelastic_" in os.path.basename(where)
    if where and made and not os.listdir(where):
        os.rmdir(where)
    return None if made else where


def _name(config: Any) -> str | None:
    """Where one node needs no name torchrun draws one by chance."""
    drawn = config.max_nodes == 1 and re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", config.run_id or "")
    return None if drawn else config.run_id or None


def _mapping(streams: Any) -> str | None:
    """torch's Std, or one for each local rank, as --tee and --redirects write it."""
    if isinstance(streams, Mapping):
        return ",".join(f"{rank}:{int(std)}" for rank, std in sorted(streams.items())) or None
    return str(int(streams)) if streams else None


def _numa(asked: Any) -> str | None:
    mode = getattr(asked, "affinity_mode", None)
    return getattr(mode, "value", None)


def _signals(names: str) -> str:
    """Those besides what both launchers pass on."""
    return ",".join(name for name in names.split(",") if name and name not in TORCHS_SIGNALS)


patch_torch_methods()
