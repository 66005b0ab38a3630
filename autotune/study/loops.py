"""Reads, checks and iterates over the launches of a study and the loops around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.errors import StudyError
from autotune.expression import Expression
from autotune.study.arguments import Argument, Buffer, Scalar
from autotune.study.plan import Launch, Loop
from autotune.study.scope import Scope
from autotune.text import did_you_mean

if TYPE_CHECKING:
    from autotune.study.schema import LaunchTable


def launches_of(
    items: Iterable[Launch | Loop], number: str = "", above: tuple[Loop, ...] = ()
) -> Iterator[tuple[str, Launch, tuple[Loop, ...]]]:
    """Yield each launch of a study: its place (`2`, or `2.turn.1`), itself, and the loops around it."""
    for n, item in enumerate(items, 1):
        place = f"{number}{n}"
        if isinstance(item, Launch):
            yield place, item, above
        elif item.alone:
            yield from ((place, launch, loops) for _, launch, loops in launches_of(item.body, "", (*above, item)))
        else:
            yield from launches_of(item.body, f"{place}.turn.", (*above, item))


def loops_of(items: Iterable[Launch | Loop]) -> Iterator[Loop]:
    """Yield the loops of a study, including nested ones."""
    for item in items:
        if isinstance(item, Loop):
            yield item
            yield from loops_of(item.body)


def steps_of(tables: Iterable[LaunchTable]) -> Iterator[str]:
    """Yield the names that count the turns of loops. Raises StudyError if a nested loop uses the same name."""
    for table in tables:
        inner = list(steps_of(table.turn or ()))
        if table.step in inner:
            raise StudyError(f"a loop inside also has the step {table.step!r}", where="launch.step")
        yield from ([table.step] if table.step else []) + inner


@dataclass(frozen=True)
class Declared:
    """Reads launches that take these arguments and sizes; `steps` are the names that count the turns of all loops."""

    arguments: Mapping[str, Argument]
    sizes: Mapping[str, int]
    steps: frozenset[str]

    def launches(
        self, tables: Iterable[LaunchTable], where: str, scope: Scope, inside: frozenset[str] = frozenset()
    ) -> tuple[Launch | Loop, ...]:
        """Return the launches and loops of some tables; `inside`: the steps of loops around them. Raises StudyError."""
        return tuple(self._item(table, f"{where}.{n}", scope, inside) for n, table in enumerate(tables, 1))

    def _item(self, table: LaunchTable, place: str, scope: Scope, inside: frozenset[str]) -> Launch | Loop:
        """Return a launch, or a loop; a loop without a `turn` repeats the launch of its own table."""
        counted = scope.with_names(inside)
        when = counted.expression(table.when, f"{place}.when")
        if table.repeat is None:
            return self._launch(table, place, scope, inside, when)
        exchanged = [name for group in table.swap for name in group]
        for name in exchanged:
            if not isinstance(self.arguments.get(name), Buffer):
                known = [each for each, argument in self.arguments.items() if isinstance(argument, Buffer)]
                what, hint = f"{name!r} is not a buffer{did_you_mean(name, known)}", f"they are {', '.join(known)}"
                raise StudyError(what, where=f"{place}.swap", hint=hint)
        if len(exchanged) != len(set(exchanged)):
            raise StudyError("names a buffer twice", where=f"{place}.swap")
        repeat = counted.expression(table.repeat, f"{place}.repeat")
        inside = inside | {table.step} if table.step else inside
        if table.turn is None:
            always = scope.expression(1, f"{place}.when")
            body: tuple[Launch | Loop, ...] = (self._launch(table, place, scope, inside, always),)
        else:
            body = self.launches(table.turn, f"{place}.turn", scope, inside)
        return Loop(body, repeat, when, table.step, tuple(map(tuple, table.swap)), table.turn is None, place)

    def _launch(self, table: LaunchTable, place: str, scope: Scope, inside: frozenset[str], when: Expression) -> Launch:
        names, whole, counted = table.arguments or [], table.global_size or [], scope.with_names(inside)
        for name in names:
            self._require(name, f"{place}.arguments", inside)
        for key, part in (("local", table.local_size), ("offset", table.offset)):
            if part is not None and len(part) != len(whole):
                raise StudyError(f"global and {key} need equally many dimensions", where=place)
        return Launch(
            table.entry or "",
            counted.expressions(whole, f"{place}.global"),
            None if table.local_size is None else scope.expressions(table.local_size, f"{place}.local"),
            tuple(names),
            when,
            None if table.offset is None else counted.expressions(table.offset, f"{place}.offset"),
            place=place,
        )

    def _require(self, name: str, where: str, inside: frozenset[str]) -> None:
        """Raise StudyError if no launch here can take an argument of that name."""
        if name not in self.arguments and name not in self.sizes:
            what, hint = f"no argument or size named {name!r}{did_you_mean(name, self.arguments)}", ""
            if name in inside:
                what, hint = f"{name!r} is the step, not an argument", f', such as type = "int" and value = "{name}"'
            raise StudyError(what, where=where, hint=f"add [arguments.{name}]{hint}")
        argument = self.arguments.get(name)
        if isinstance(argument, Scalar) and (others := (argument.names & self.steps) - inside):
            what = f"{name} counts with {min(others)}, which no loop around this launch has as its step"
            raise StudyError(what, where=where)
