"""What a script does to its modules, in the order in which it does so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autodist.interpreter import Event, Interpreter
from autodist.models.behind import differentiated
from autodist.models.parts import parts, unwrapped
from autodist.solve.steps import steps_of
from autodist.values import (
    Object,
    Thing,
)


@dataclass(frozen=True)
class History:
    """What happens to each module, in order."""

    forwards: Mapping[Thing, list[Event]]
    """Those with gradients."""
    quiet: Mapping[Thing, list[Event]]
    """Those without."""
    backwards: Mapping[Thing, list[Event]]
    places: Mapping[Thing, list[Event]]
    """Where it is bound or moved."""
    lists: Mapping[Thing, list[Event]]
    """Where a list that holds it is bound."""
    held: Mapping[Thing, list[Event]]
    """Where it comes into a list: `nets.append(Net())`."""
    freezes: Mapping[Thing, list[Event]]
    grows: Mapping[Thing, list[Event]]
    """Where it is given further layers."""
    wraps: list[Event]
    averaged: bool
    """Whether the script itself reduces gradients over the ranks."""


def history_of(run: Interpreter) -> History:
    forwards: dict[Thing, list[Event]] = {}
    quiet: dict[Thing, list[Event]] = {}
    backwards: dict[Thing, list[Event]] = {}
    places: dict[Thing, list[Event]] = {}
    lists: dict[Thing, list[Event]] = {}
    held: dict[Thing, list[Event]] = {}
    freezes: dict[Thing, list[Event]] = {}
    grows: dict[Thing, list[Event]] = {}
    for event in run.events:
        if event.kind == "forward":
            _note(forwards if event.grad else quiet, unwrapped(event.value), event)
        elif event.kind == "backward":
            _note(backwards, differentiated(run, event), event)
        elif event.kind in ("bind", "bind_part", "move", "alias", "alias_part") and not event.inside_forward:
            _note(places, unwrapped(event.value), event)
        elif event.kind == "bind_each" and not event.inside_forward:
            _note(lists, unwrapped(event.value), event)
        elif event.kind == "hold_models" and not event.inside_forward:
            _note(held, unwrapped(event.value), event)
        elif event.kind == "freeze":
            _note(freezes, unwrapped(event.value), event)
        elif event.kind == "grow" and not event.inside_forward and not _is_building(event):
            _note(grows, unwrapped(event.value), event)
    return History(
        forwards,
        quiet,
        backwards,
        places,
        lists,
        held,
        freezes,
        grows,
        run.of("wrap"),
        bool(run.of("collective")) and steps_of(run.runs.program).averages,
    )


def learning(module: Object, history: History) -> list[Event]:
    """The forward passes that a backward pass may go back through: not those that draw samples at the end."""
    last = max((event.order for event in history.backwards.get(module, [])), default=-1)
    return [event for event in history.forwards.get(module, []) if event.order < last]


def _is_building(event: Event) -> bool:
    """Whether a module is being made, once for each of several trainings in a loop, maybe."""
    made = [c.function.defined_in for c in event.calls if c.function.name == "__init__"]
    return any("module" in cls.roles for cls in made if cls is not None)


def _note(found: dict[Thing, list[Event]], things: Iterable[Thing], event: Event) -> None:
    for thing in things:
        found.setdefault(thing, []).append(event)


def place_of(thing: Thing) -> tuple[int, int, str]:
    """Where a thing is made; one call of a factory makes several."""
    node = getattr(thing, "node", None)
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0), str(getattr(thing, "name", ""))


def freezes(module: Object, history: History) -> list[Event]:
    """Where parameters of a module are frozen or released."""
    events = {e.order: e for part in parts(module) for e in history.freezes.get(part, [])}
    return [events[order] for order in sorted(events)]


def grows(module: Object, history: History) -> list[Event]:
    """Where a module is given further layers after it was made, and learns with them."""
    events = {e.order: e for part in parts(module) for e in history.grows.get(part, [])}
    made = next((e.order for e in history.places.get(module, [])), -1)
    ours = [events[order] for order in sorted(events) if made < order]
    uses = history.backwards.get(module) or history.forwards.get(module, [])
    return [each for each in ours if _is_followed(each, uses) and not _is_asked_alone(each, history)]


def _is_followed(event: Event, uses: list[Event]) -> bool:
    """Whether one of some other events comes after an event, or in the next round of a loop."""
    rounds = {loop.node for loop in event.loops}
    return any(use.order > event.order or rounds & {loop.node for loop in use.loops} for use in uses)


def _is_asked_alone(event: Event, history: History) -> bool:
    """Whether a part that a module is given is called without gradients alone: `self.teacher = deepcopy(self.net)`."""
    given = [thing for thing in unwrapped(event.detail) if isinstance(thing, Object)]
    return bool(given) and all(each in history.quiet and each not in history.forwards for each in given)


def happens_during_training(events: Iterable[Event], module: Object, history: History) -> bool:
    """Whether one of some events happens to a module that has learned since it was made, and learns on."""
    places, backwards = history.places.get(module, []), history.backwards.get(module, [])
    for event in events:
        made = (each.order for each in places if each.node is places[0].node and each.order < event.order)
        begun = max(made, default=-1)
        learned = any(begun < each.order < event.order for each in backwards)
        if learned and _is_followed(event, backwards):
            return True
    return False
