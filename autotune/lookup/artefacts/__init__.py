"""A study's stored bests as one file for programs: every device and size, and how to choose among them.

catalogue.py   what is stored of a study: entries, each with what it takes to launch it
geometry.py    launches, extents and scalars of a configuration as C over the sizes; options.py: its build options
ctext.py       expressions, names and text of others, made safe for C
header.py      a C99 and C++ header
document.py    a JSON document; schema.json says what it holds
"""

from collections.abc import Callable

from autotune.lookup.artefacts.catalogue import Artefact, Catalogue, collect
from autotune.lookup.artefacts.document import render as document
from autotune.lookup.artefacts.header import render as header

ARTEFACTS: dict[str, Callable[..., Artefact]] = {"header": header, "table": document}
"""The renderers by the names that `autotune export --format` takes. Each renders a Catalogue, with the kernel's text if
`embed`; the header also takes a `prefix`.
"""
