"""Generated from protos/operator.proto by `make protos`; do not edit."""

from elastic_run.clusterd import messages as _messages

FILE = (
    b'\n\x0eoperator.proto\x12\x14elastic'
    b'_run.operator"+\n\x03Job\x12\x0e\n\x02i'
    b'd\x18\x01 \x01(\tR\x02id\x12\x14\n\x05terms\x18\x02 \x01('
    b'\tR\x05terms"\x17\n\x05JobId\x12\x0e\n\x02id\x18\x01'
    b' \x01(\tR\x02id"\x0c\n\nEverything"\x9a\x02'
    b'\n\x08JobState\x12\x0e\n\x02id\x18\x01 \x01(\tR\x02i'
    b'd\x12\x14\n\x05state\x18\x02 \x01(\tR\x05state\x12\x1a'
    b'\n\x08incident\x18\x03 \x01(\tR\x08inciden'
    b't\x12\x1e\n\nregistered\x18\x04 \x01(\x08R\nre'
    b'gistered\x12\x1e\n\nsubscribed\x18\x05 '
    b'\x01(\x08R\nsubscribed\x12\x18\n\x07runnin'
    b'g\x18\x06 \x01(\x08R\x07running\x12\x16\n\x06pause'
    b'd\x18\x07 \x01(\x08R\x06paused\x12!\n\x0cfaulty'
    b'_nodes\x18\x08 \x03(\x05R\x0bfaultyNodes'
    b'\x12!\n\x0cseconds_left\x18\t \x01(\x01R\x0bs'
    b'econdsLeft\x12\x14\n\x05terms\x18\n \x01(\t'
    b'R\x05terms":\n\x04Jobs\x122\n\x04jobs\x18\x01'
    b' \x03(\x0b2\x1e.elastic_run.operat'
    b'or.JobStateR\x04jobs"U\n\x05Alar'
    b'm\x12\x0e\n\x02id\x18\x01 \x01(\tR\x02id\x12\x12\n\x04rank'
    b'\x18\x02 \x01(\x05R\x04rank\x12\x12\n\x04kind\x18\x03 \x01('
    b'\tR\x04kind\x12\x14\n\x05clear\x18\x04 \x01(\x08R\x05c'
    b'lear"D\n\nNodeChange\x12\x0e\n\x02id\x18'
    b'\x01 \x01(\tR\x02id\x12\x12\n\x04node\x18\x02 \x01(\x05R\x04'
    b'node\x12\x12\n\x04gone\x18\x03 \x01(\x08R\x04gone"'
    b'3\n\x07Running\x12\x0e\n\x02id\x18\x01 \x01(\tR\x02i'
    b'd\x12\x18\n\x07running\x18\x02 \x01(\x08R\x07runni'
    b'ng"\x1c\n\x04Done\x12\x14\n\x05error\x18\x01 \x01(\t'
    b'R\x05error2\xac\x03\n\x08Operator\x12@\n\x07D'
    b'eclare\x12\x19.elastic_run.oper'
    b'ator.Job\x1a\x1a.elastic_run.op'
    b'erator.Done\x12A\n\x06Delete\x12\x1b.e'
    b'lastic_run.operator.JobId'
    b'\x1a\x1a.elastic_run.operator.D'
    b'one\x12D\n\x04List\x12 .elastic_run'
    b'.operator.Everything\x1a\x1a.el'
    b'astic_run.operator.Jobs\x12@'
    b'\n\x05Raise\x12\x1b.elastic_run.ope'
    b'rator.Alarm\x1a\x1a.elastic_run'
    b'.operator.Done\x12J\n\nChangeN'
    b'ode\x12 .elastic_run.operato'
    b'r.NodeChange\x1a\x1a.elastic_ru'
    b'n.operator.Done\x12G\n\nSetRun'
    b'ning\x12\x1d.elastic_run.operat'
    b'or.Running\x1a\x1a.elastic_run.'
    b'operator.Doneb\x06proto3'
)
_made = _messages.load(FILE)
METHODS = _made.methods
Job = _made.classes["Job"]
JobId = _made.classes["JobId"]
Everything = _made.classes["Everything"]
JobState = _made.classes["JobState"]
Jobs = _made.classes["Jobs"]
Alarm = _made.classes["Alarm"]
NodeChange = _made.classes["NodeChange"]
Running = _made.classes["Running"]
Done = _made.classes["Done"]
