"""Where ranks would part ways by what each finds for itself: the clock, a signal, a file that somebody puts there, or
whether it has a writer.

A rank that leaves a loop earlier than another, or comes alone to what all compute together, has the others wait for it
in vain: they decide together.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from autodist import randomness, regions
from autodist.common_draws import come_alike
from autodist.files import writing
from autodist.interpreter import Event, Interpreter
from autodist.rule import Severity
from autodist.script import Concern, Decision
from autodist.source import Source, last_name, shortened, walk
from autodist.values import NOTHING, Value, drawn_by_evaluation, is_clock

MEETING = ("forward", "backward", "step", "collective")
"""Kinds of events for which a rank needs the others."""
ANY_TIME = ("signal", "thread")
ENDING = frozenset("exit quit _exit".split())
SET = (ast.IsNot, ast.NotEq, ast.Gt, ast.GtE)


def decisions(
    run: Interpreter, alone: frozenset[ast.AST], apart: frozenset[ast.AST], reduced: Iterable[ast.AST]
) -> tuple[Decision, ...]:
    """The parts of conditions that all ranks must answer alike. ``alone`` are statements that rank 0 runs alone,
    ``apart`` those that ranks run one after the other, ``reduced`` expressions that all of them compute together."""
    training = frozenset(loop.node for event in run.of("backward") for loop in event.loops)
    if not training:
        return ()
    met = _met(run, reduced)
    looked = frozenset(event.node for event in run.of("exists"))
    found: dict[ast.expr, Decision] = {}
    for event in run.of("test"):
        if event.on_one_rank or event.inside_forward or regions.within(event, apart) or _is_of_sample(event):
            continue
        if regions.within(event, alone):
            continue
        assert isinstance(event.node, ast.expr)
        inside = any(loop.node in training for loop in event.loops) or event.source.parents[event.node] in training
        for part in _parts(event.node):
            if writing.asks_for_writer(part, run) and _decides_by_writer(event, part, met):
                found[part] = Decision(event.source, part, not isinstance(part, ast.Compare))
                continue
            value = run.values.get(part, NOTHING)
            clocks = [each for each in value.origins if is_clock(each)]
            by_signal = any(not each.roles.isdisjoint(ANY_TIME) for each in clocks)  # type: ignore[union-attr]
            by_file = not clocks and not looked.isdisjoint(walk(part))
            if part in found or not (clocks or by_file) or not run.is_alike(part):
                continue
            if not inside and not by_signal:
                continue
            if _decides(event, run, training, met, by_file):
                found[part] = Decision(event.source, part, by_signal and _says_set(part))
    return tuple(found.values())


def by_noise(run: Interpreter, alone: frozenset[ast.AST], apart: frozenset[ast.AST]) -> tuple[Decision, ...] | None:
    """What is decided by the noise of an evaluation that each rank makes of its own, `if validation_loss < best` of a
    VAE, for rank 0 to decide; None where ranks do not come there alike. The losses of shares are those of all ranks."""
    if _trains_by_noise(run, alone):
        return None
    found: dict[ast.expr, Decision] = {}
    for event in randomness.decided_by_noise(run):
        if event.on_one_rank or regions.within(event, alone) or not _is_alike(event, run):
            continue
        if event.kind == "test" and not _is_of_consequence(event, run, alone):
            continue
        asked = [*_parts(event.node)] if event.kind == "test" and isinstance(event.node, ast.expr) else _given(event)
        noisy = [part for part in asked if randomness.is_noise_of_evaluation(run.values.get(part, NOTHING))]
        loops = {loop.node for loop in event.loops}
        for part in noisy or asked:
            if regions.within(event, apart) or not come_alike(replace(event, node=part), run, loops):
                return None
            found[part] = Decision(event.source, part)
    return tuple(found.values())


def _trains_by_noise(run: Interpreter, alone: frozenset[ast.AST]) -> bool:
    """Whether such noise goes into what ranks train with, past all that they decide: it weighs a loss, `beta * kl`
    after `beta = validation_loss`, or picks a model, `models[losses.index(min(losses))]`."""
    trained = drawn_by_evaluation(event.value for event in run.of("backward"))

    def is_noise(node: ast.expr) -> bool:
        value = run.values.get(node, NOTHING)
        return randomness.is_noise_of_evaluation(value) and run.is_alike(node)

    def weighs(node: ast.expr) -> bool:
        return is_noise(node) and not trained.isdisjoint(run.values.get(node, NOTHING).origins)

    for source in run.project.sources:
        for node in walk(source.tree):
            if isinstance(node, ast.BinOp) and not run.is_alike(node):
                if weighs(node.left) or weighs(node.right):
                    return True
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and is_noise(node.slice):
                if run.values.get(node, NOTHING).things and alone.isdisjoint(source.ancestors(node)):
                    return True
    return False


def _is_alike(event: Event, run: Interpreter) -> bool:
    """Whether all ranks are asked by a condition, or give a schedule or a setting, the same."""
    return all(map(run.is_alike, [event.node] if event.kind == "test" else _given(event)))


def _given(event: Event) -> list[ast.expr]:
    """What a schedule goes by, `scheduler.step(validation_loss)`, or a setting is: `group["lr"] = validation_loss`."""
    call = event.node
    if isinstance(call, ast.Subscript):
        statement = event.source.statement(call)
        return [statement.value] if isinstance(statement, (ast.Assign, ast.AugAssign)) else []
    assert isinstance(call, ast.Call)
    return [*call.args[:1], *(each.value for each in call.keywords if each.arg == "metrics")]


def _is_of_consequence(event: Event, run: Interpreter, alone: frozenset[ast.AST]) -> bool:
    """Whether a condition says more than what rank 0 writes, what is printed, and what number later ones go by."""
    branch = event.source.parents[event.node]
    if not isinstance(branch, ast.If):
        return True
    shown = {e.node for kind in ("print", "log") for e in run.of(kind)}
    for statement in (*branch.body, *branch.orelse):
        if statement in alone or isinstance(statement, ast.Expr) and statement.value in shown:
            continue
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name):
            if randomness.is_noise_of_evaluation(run.values.get(statement.value, NOTHING)):
                continue
        return True
    return False


def _met(run: Interpreter, reduced: Iterable[ast.AST]) -> frozenset[ast.AST]:
    """What all ranks compute together, and the calls that lead there."""
    events = [event for kind in MEETING for event in run.of(kind)]
    calls = {call.node for event in events for call in event.calls if call.node is not None}
    return frozenset({*(event.node for event in events), *calls, *reduced})


def _is_of_sample(event: Event) -> bool:
    """Whether a data set decides, or a worker of a loader, for the samples that it reads."""
    names = {getattr(call.function.node, "name", "") for call in event.calls}
    return "__getitem__" in names


def _parts(test: ast.expr) -> Iterator[ast.expr]:
    """What a condition is put together of: `done` and `expired()` of `not done and expired()`."""
    match test:
        case ast.BoolOp(values=values):
            for value in values:
                yield from _parts(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _parts(operand)
        case _:
            yield test


def _says_set(part: ast.expr) -> bool:
    """Whether a flag is asked for that a signal sets, or whether it is set: `self.signum is not None`."""
    if not isinstance(part, ast.Compare):
        return True
    unset = [each.value for each in part.comparators if isinstance(each, ast.Constant)]
    if isinstance(part.ops[0], (ast.Is, ast.Eq)):
        return unset == [True]
    return isinstance(part.ops[0], SET) and len(unset) == 1 and not unset[0]


def _decides(
    event: Event, run: Interpreter, training: frozenset[ast.AST], met: frozenset[ast.AST], by_file: bool
) -> bool:
    """Whether a condition says what ranks do together, and not only what one of them reports or writes."""
    branch: ast.AST = event.source.parents[event.node]
    if isinstance(branch, ast.While):
        return branch in training or not met.isdisjoint(walk(branch))
    if not isinstance(branch, ast.If):
        return isinstance(branch, ast.IfExp) and not by_file
    blocks = [*branch.body, *branch.orelse]
    inside = [each for statement in blocks for each in walk(statement)]
    if not met.isdisjoint(inside):
        return True
    if any(_leaves(each, event, training, by_file) for each in inside):
        return True
    return any(_settles(each, run, by_file) for each in inside)


def _decides_by_writer(event: Event, part: ast.expr, met: frozenset[ast.AST]) -> bool:
    """Whether ranks that have no writer would miss what all do together: `if writer and step % 100 == 0:`, and what
    comes behind `if writer is None: return`."""
    branch = event.source.parents[event.node]
    if not isinstance(branch, ast.If) or not isinstance(part, ast.Name | ast.Attribute | ast.Compare):
        return False
    inside = [each for statement in (*branch.body, *branch.orelse) for each in walk(statement)]
    if not met.isdisjoint(inside):
        return True
    around = list(event.source.ancestors(branch))
    loop = next((each for each in around if isinstance(each, (ast.For, ast.While))), None)
    left: list[ast.AST] = [event.source.home(branch)] if any(isinstance(each, ast.Return) for each in inside) else []
    left += [loop] if loop and any(isinstance(each, (ast.Break, ast.Continue)) for each in inside) else []
    return any(each in met and _begin(each) > _begin(branch) for whole in left for each in walk(whole))


def _begin(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _leaves(node: ast.AST, event: Event, training: frozenset[ast.AST], by_file: bool) -> bool:
    """Whether a rank would leave a training loop there, or the training."""
    if isinstance(node, (ast.Break, ast.Continue)):
        around = event.source.ancestors(node)
        return next((each for each in around if isinstance(each, (ast.For, ast.While))), None) in training
    if isinstance(node, ast.Return):
        return not by_file or _is_answer(node.value)
    if isinstance(node, ast.Raise):
        return not by_file
    return isinstance(node, ast.Call) and last_name(node.func) in ENDING


def _settles(node: ast.AST, run: Interpreter, by_file: bool) -> bool:
    """Whether something is kept that later decisions are taken by: `stop = True`, not `last = time.time()`."""
    if not isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) or node.value is None:
        return False
    if by_file or isinstance(node, ast.AugAssign):
        return _is_answer(node.value)
    value: Value = run.values.get(node.value, NOTHING)
    if value.things or any(map(is_clock, value.origins)) or isinstance(node.value, (ast.JoinedStr, ast.BinOp)):
        return False
    return _is_answer(node.value)


def _is_answer(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


INTERRUPTS = frozenset("KeyboardInterrupt BaseException".split())
ERRORS = frozenset("RuntimeError Exception BaseException OutOfMemoryError ValueError AssertionError".split())


def concerns(run: Interpreter, reduced: Iterable[ast.AST]) -> Iterator[Concern]:
    """Where an interrupt ends the training of a rank in the midst of a step, and the rank goes on to what it needs the
    others for."""
    met = _met(run, reduced)
    trained = {event.node for event in run.of("backward")}
    trained |= {call.node for event in run.of("backward") for call in event.calls if call.node is not None}
    for source in run.project.sources:
        for attempt in (node for node in walk(source.tree) if isinstance(node, ast.Try)):
            if trained.isdisjoint(each for statement in attempt.body for each in walk(statement)):
                continue
            for handler in attempt.handlers:
                if _catches_interrupt(handler) and not met.isdisjoint(_afterwards(handler, attempt, source)):
                    message = (
                        "an interrupt reaches each rank in another step, and ranks that go on from here would wait for "
                        "those that are still in it: have it set a flag that ranks agree on after each step, or leave "
                        "what follows to a run of its own"
                    )
                    yield Concern("AD608", source, handler, message, Severity.NOTE)
                elif _goes_on_alone(handler, attempt, source, run):
                    message = (
                        "a rank that goes on from here after an error of its own, as when its memory is full, leaves "
                        "the others waiting for it in the step that it gives up: let the error end the training, or "
                        "make sure that all ranks meet it alike"
                    )
                    yield Concern("AD608", source, handler, message, Severity.WARNING)
    yield from _left_out(run)
    yield from _meeting_in_handlers(run, met)


def _meeting_in_handlers(run: Interpreter, met: frozenset[ast.AST]) -> Iterator[Concern]:
    """What needs all ranks where a signal interrupts each of them: `signal.signal(SIGTERM, save_checkpoint)`."""
    handlers = {each.node for event in run.of("signal") for each in event.value.functions}
    reached = (
        event
        for event in (run.events if handlers else ())
        if any(call.node is None and call.function.node in handlers for call in event.calls)
    )
    for event in [each for each in reached if each.node in met and not each.on_one_rank][:1]:
        code = shortened(event.source.code(event.node)) if isinstance(event.node, ast.expr) else "this"
        message = (
            f"{code} takes all ranks, and the signal interrupts each of them in another step, in the midst of what "
            "ranks do together: they would wait for one another for ever; have the handler set a flag, which ranks "
            "agree on after each step, and do this there"
        )
        yield Concern("AD608", event.source, event.node, message, Severity.WARNING)


def _goes_on_alone(handler: ast.ExceptHandler, attempt: ast.Try, source: Source, run: Interpreter) -> bool:
    """Whether a handler goes on with the next step after an error: `if "out of memory" in str(e): continue`."""
    named = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type] if handler.type else []
    catches = not named or any(last_name(each) in ERRORS for each in named)
    return catches and _is_in_step(attempt, source, run) and not any(map(_goes, handler.body))


def _is_in_step(node: ast.AST, source: Source, run: Interpreter) -> bool:
    """Whether a loop of training steps is around it in its function, or around a call of that."""
    training = {loop.node for event in run.of("backward") for loop in event.loops}
    if not training.isdisjoint(source.ancestors(node)):
        return True
    home = source.home(node)
    for event in run.of("backward"):
        at = next((at for at, call in enumerate(event.calls) if call.function.node is home), -1)
        chain = ((call.source, call.node) for call in event.calls[: at + 1] if call.node is not None)
        if any(not training.isdisjoint(each.ancestors(call)) for each, call in chain):
            return True
    return False


def _left_out(run: Interpreter) -> Iterator[Concern]:
    """Steps that are left out where a rank has no batch: `if batch is None: continue` behind a collate function that
    leaves samples out. Another rank may have some of them left."""
    steps = run.step_loops
    learns = {event.node for event in run.of("backward")}
    learns |= {call.node for event in run.of("backward") for call in event.calls if call.node is not None}
    for event in run.of("test"):
        node, branch = event.node, event.source.parents.get(event.node)
        if not isinstance(branch, ast.If) or event.inside_forward or event.on_one_rank:
            continue
        if not any(loop.node in steps for loop in event.loops) or not any(map(_asks_for_none, _asked_of(node))):
            continue
        asked = [each for part in _asked_of(node) for each in walk(part) if isinstance(each, ast.Name)]
        loops = [loop for loop in event.loops if isinstance(loop.node, ast.For) and loop.node in steps]
        given = {each.id for loop in loops for each in walk(loop.node.target) if isinstance(each, ast.Name)}  # type: ignore[union-attr]
        leaves = any(isinstance(each, (ast.Continue, ast.Break)) for each in branch.body)
        steps_there = not learns.isdisjoint(each for statement in branch.body for each in walk(statement))
        if not given.isdisjoint(each.id for each in asked) and (leaves or steps_there):
            code = shortened(event.source.code(node)) if isinstance(node, ast.expr) else "this"
            message = (
                f"{code} may hold on one rank and not on another, which would wait for it in its step: let the data "
                "set give another sample in place of one that is left out, or agree over the ranks on whether all "
                "have a batch"
            )
            yield Concern("AD608", event.source, event.node, message, Severity.WARNING)
            return


def _asked_of(test: ast.AST) -> list[ast.expr]:
    return [*_parts(test)] if isinstance(test, ast.expr) else []


def _asks_for_none(part: ast.expr) -> bool:
    """`batch is None`, `batch is not None`"""
    if not isinstance(part, ast.Compare) or not isinstance(part.ops[0], (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
        return False
    return any(isinstance(each, ast.Constant) and each.value is None for each in part.comparators)


def _catches_interrupt(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    named = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(last_name(each) in INTERRUPTS for each in named)


def _afterwards(handler: ast.ExceptHandler, attempt: ast.Try, source: Source) -> Iterator[ast.AST]:
    """What may be run in the function once a handler has been entered."""
    for statement in handler.body:
        yield from walk(statement)
    for statement in attempt.finalbody:
        yield from walk(statement)
    if any(_goes(each) for each in handler.body):
        return
    inner: ast.stmt = attempt
    for around in source.ancestors(attempt):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(around, name, None)
            if isinstance(block, list) and inner in block:
                later = block if isinstance(around, (ast.For, ast.While)) else block[block.index(inner) + 1 :]
                for statement in later:
                    yield from walk(statement)
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)) or not isinstance(around, ast.stmt):
            return
        inner = around


def _goes(statement: ast.stmt) -> bool:
    """`raise`, `return`, `sys.exit()`"""
    called = statement.value if isinstance(statement, ast.Expr) else None
    ends = isinstance(called, ast.Call) and last_name(called.func) in ENDING
    return ends or isinstance(statement, (ast.Raise, ast.Return))
