"""Generated from protos/operator.proto by `make protos`; do not edit."""

from google.protobuf.internal import containers as _containers
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union


from elastic_run.clusterd.messages import Method

FILE: bytes
METHODS: dict[str, Method]

class Job(_message.Message):
    __slots__ = ("id", "terms")
    ID_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    id: str
    terms: str
    def __init__(self, id: _Optional[str] = ..., terms: _Optional[str] = ...) -> None: ...

class JobId(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class Everything(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JobState(_message.Message):
    __slots__ = ("id", "state", "incident", "registered", "subscribed", "running", "paused", "faulty_nodes", "seconds_left", "terms")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    FAULTY_NODES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_LEFT_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: str
    incident: str
    registered: bool
    subscribed: bool
    running: bool
    paused: bool
    faulty_nodes: _containers.RepeatedScalarFieldContainer[int]
    seconds_left: float
    terms: str
    def __init__(self, id: _Optional[str] = ..., state: _Optional[str] = ..., incident: _Optional[str] = ..., registered: _Optional[bool] = ..., subscribed: _Optional[bool] = ..., running: _Optional[bool] = ..., paused: _Optional[bool] = ..., faulty_nodes: _Optional[_Iterable[int]] = ..., seconds_left: _Optional[float] = ..., terms: _Optional[str] = ...) -> None: ...

class Jobs(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobState]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobState, _Mapping]]] = ...) -> None: ...

class Alarm(_message.Message):
    __slots__ = ("id", "rank", "kind", "clear")
    ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    id: str
    rank: int
    kind: str
    clear: bool
    def __init__(self, id: _Optional[str] = ..., rank: _Optional[int] = ..., kind: _Optional[str] = ..., clear: _Optional[bool] = ...) -> None: ...

class NodeChange(_message.Message):
    __slots__ = ("id", "node", "gone")
    ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    id: str
    node: int
    gone: bool
    def __init__(self, id: _Optional[str] = ..., node: _Optional[int] = ..., gone: _Optional[bool] = ...) -> None: ...

class Running(_message.Message):
    __slots__ = ("id", "running")
    ID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    id: str
    running: bool
    def __init__(self, id: _Optional[str] = ..., running: _Optional[bool] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: str
    def __init__(self, error: _Optional[str] = ...) -> None: ...
