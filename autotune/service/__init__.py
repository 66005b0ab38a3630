"""The service: searches, results and pages over HTTP, for a team. It holds no logic of its own.

    config.py    Config, and what a server refuses to start as
    app.py       create_app: everything below, put together
    guard.py     checks of every request: names, sizes, callers, headers
    callers.py   who asks: tokens, cookies, roles
    routes.py    the API below /v1;  shapes.py: the requests;  answers.py, refused.py: errors as answers
    document.py  the API's document;  answered/: the answers as that document shows them
    depends.py   what routes and pages take from a request
    views/       what is shown, as plain data: the same for JSON and for pages
    lookups.py   GET /v1/best, a plain route
    submit.py    requested searches: checked, bounded, queued;  uploads.py: studies that are sent along
    takein.py    exported lines that are sent
    runner.py    the queues, a process.py per search (child.py, search.py, asked.py);  feeds.py: their events
    studies.py, machine.py, state.py   what a server knows and keeps open;  newest.py: at most so many entries
    serving.py   serve: on its socket;  connections.py: limits how long a connection keeps the server waiting
    pages/       for browsers: `pages.router`
    client.py    the client: `connect`, with transport.py, sending.py, kept.py and trust.py

The names below are imported when first used: a client needs the standard library only.
"""

from typing import TYPE_CHECKING

from autotune import lazily

if TYPE_CHECKING:
    from autotune.service.app import create_app
    from autotune.service.client import MOST_TRIALS, Server, ServerAway, ServerRefuses, connect
    from autotune.service.config import Config, Limits
    from autotune.service.serving import serve
    from autotune.service.state import Service
    from autotune.service.trust import believed, failure_of, search_id, sent_text
else:
    __getattr__ = lazily(
        __name__,
        {
            "app": "create_app",
            "client": "MOST_TRIALS Server ServerAway ServerRefuses connect",
            "config": "Config Limits",
            "serving": "serve",
            "state": "Service",
            "trust": "believed failure_of search_id sent_text",
        },
    )
