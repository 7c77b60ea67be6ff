"""torchrun's options, as data, and its way of reading them: both spellings, any unambiguous beginning of a name.

Source: `torchrun --help` of torch 2.1 to 2.15 (torch/distributed/run.py, get_args_parser) and the main branch after it;
`since` is the first release with the option, empty for those that 2.1 has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elastic_run.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    """With dashes; the spelling with underscores means the same."""
    flag: bool = False
    """Takes no value."""
    short: str = ""
    since: str = ""

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")


OPTIONS = (
    Option("nnodes"),
    Option("nproc-per-node"),
    Option("rdzv-backend"),
    Option("rdzv-endpoint"),
    Option("rdzv-id"),
    Option("rdzv-conf"),
    Option("standalone", flag=True),
    Option("max-restarts"),
    Option("monitor-interval"),
    Option("start-method"),
    Option("event-log-handler", since="2.8"),
    Option("role"),
    Option("module", flag=True, short="m"),
    Option("no-python", flag=True),
    Option("run-path", flag=True),
    Option("log-dir"),
    Option("redirects", short="r"),
    Option("tee", short="t"),
    Option("log-line-prefix-template", since="2.14"),
    Option("local-ranks-filter", since="2.3"),
    Option("duplicate-stdout-filters", since="2.10"),
    Option("duplicate-stderr-filters", since="2.10"),
    Option("node-rank"),
    Option("master-addr"),
    Option("master-port"),
    Option("local-addr"),
    Option("logs-specs", since="2.3"),
    Option("numa-binding", since="2.9"),
    Option("signals-to-handle", since="2.10"),
    Option("shutdown-timeout", since="2.12"),
    Option("exit-barrier-timeout", since="main"),
    Option("virtual-local-rank", flag=True, since="2.10"),
    Option("print-completion", since="2.14"),
    Option("help", flag=True, short="h"),
)
BY_FIELD = {option.field: option for option in OPTIONS}


def expanded(argv: Sequence[str], takes_value: dict[str, bool]) -> list[str]:
    """`argv` with torchrun's options spelled out; the script and what follows it are left as they are.

    `takes_value` names every option of ours and torchrun's, in full, with one or two leading dashes. Only torchrun's
    own may be shortened, so that an option of ours never changes what a script for torchrun means.

    Raises:
        ConfigError: a shortened name fits several options.
    """
    result: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--" or not word.startswith("-") or word == "-":
            return [*result, word, *words]
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = name if name in takes_value else _full(name)
            result.append(name + equals + value)
            needs_next = takes_value.get(name, False) and not equals
        else:
            result.append(word)
            needs_next = takes_value.get(word[:2], False) and len(word) == 2
        if needs_next and words:
            result.append(words.pop(0))
    return result


def _full(name: str) -> str:
    """The one option of torchrun that begins so; `name` itself if there is none, for the parser to refuse."""
    begun = name[2:].replace("-", "_")
    fits = [option for option in OPTIONS if begun and option.field.startswith(begun)]
    if len(fits) > 1:
        raise ConfigError(f"{name} may mean {', '.join('--' + o.name for o in fits)}; write more of it")
    return f"--{fits[0].name}" if fits else name
