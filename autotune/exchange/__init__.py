"""Other tools' files, in and out: one file and one row each.

An imported trial keeps what its tool wrote of it and is marked with its origin. It tells a search where to look. It
must be measured here before it counts, and cannot be a best until then.

    document.py      what a file says, whatever its format; the Reader protocol
    reading.py       bytes -> document: unpacked, its format recognised
    belonging.py     the device and the size that a document is of
    adopt.py         document -> trials of a study
    recording.py     what is stored of a problem, as it is written
    gathering.py     the problems of a study that an export is about
    t1.py, python.py a tuning problem, as a study; the Python in it;  t1_space.py: its sizes, parameters and conditions
    writing.py       the formats that are written, by their names: a Writer each
    kernel_tuner.py, t4.py, clblast.py, ktt.py, pyatf.py, wisdom.py, csv.py, optuna.py: the formats
"""

from autotune.exchange.adopt import adopt
from autotune.exchange.belonging import choices_of, device_of, require_element, size_of
from autotune.exchange.document import Document
from autotune.exchange.gathering import HEADER, element_of, gather, one
from autotune.exchange.reading import READERS, UNPACKING, is_foreign, is_packed, read
from autotune.exchange.recording import Recording
from autotune.exchange.t1 import MOST_BYTES as MOST_BYTES_T1
from autotune.exchange.t1 import read_t1
from autotune.exchange.writing import WRITERS
