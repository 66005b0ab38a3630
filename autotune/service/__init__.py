"""The service: searches, results and pages over HTTP, for a team. It holds no logic of its own.

    config.py    Config, and what a server refuses to start as
    app.py       create_app: everything below, put together
    guard.py     what each request passes first: names, sizes, callers, headers
    callers.py   who asks: tokens, cookies, roles
    routes.py    the API below /v1;  shapes.py: what may be asked;  answers.py, refused.py: errors as answers
    document.py  the API's document;  answered/: what is answered, as that shows it
    depends.py   what routes and pages take of a request
    views/       what is shown, as plain data: the same for JSON and for pages
    lookups.py   GET /v1/best, a plain route
    submit.py    what is wanted searched: checked, bounded, queued;  uploads.py: studies that come along
    takein.py    exported lines that are sent
    runner.py    the queues, a process.py per search (child.py, search.py, asked.py);  feeds.py: their events
    studies.py, machine.py, state.py   what a server knows and has open
    serving.py   serve: on its socket;  connections.py: for how long one may keep the server waiting
    pages/       for browsers: `pages.router`
    client.py    the other end: `connect`, with transport.py, sending.py, kept.py and trust.py

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
