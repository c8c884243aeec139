from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from nbrag import background
from nbrag.background import on_loop, run


async def where() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


def interrupt_after(seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


def test_a_script_gets_the_result_from_the_background_thread():
    assert run(where()) == "nbrag-loop"
    assert threading.current_thread().name != "nbrag-loop"


def test_a_script_gets_the_exception():
    async def fail():
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        run(fail())


def test_a_timeout_of_the_work_is_not_taken_for_a_slice_of_waiting():
    async def fail():
        await asyncio.sleep(0.15)
        raise TimeoutError("the work's own")

    with pytest.raises(TimeoutError, match="own"):
        run(fail())


async def test_it_runs_while_the_callers_own_loop_is_running():
    assert run(where()) == "nbrag-loop"


async def test_on_loop_forwards_from_another_loop():
    assert await on_loop(where()) == "nbrag-loop"
    seen = await asyncio.gather(*(on_loop(where()) for _ in range(20)))
    assert set(seen) == {"nbrag-loop"}


def test_on_loop_is_direct_on_the_loop_itself():
    async def nested():
        task = asyncio.current_task()

        async def inner():
            return asyncio.current_task() is task

        return await on_loop(inner())

    assert run(nested()) is True


def test_scripts_loops_and_threads_share_one_loop():
    async def loop_id():
        return id(asyncio.get_running_loop())

    found = {run(loop_id()), asyncio.run(on_loop(loop_id()))}
    thread = threading.Thread(target=lambda: found.add(run(loop_id())))
    thread.start()
    thread.join()
    assert len(found) == 1


def test_run_on_the_loop_itself_is_refused():
    async def nested():
        return run(where())

    with pytest.raises(RuntimeError, match="use await"):
        run(nested())


def test_waiting_calls_back():
    calls = []
    run(asyncio.sleep(0.45), on_wait=lambda: calls.append(time.monotonic()))
    assert 2 <= len(calls) <= 5


def test_an_interrupt_cancels_and_waits_for_the_rollback():
    steps = []

    async def work():
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            steps.append("cancelled")
            await asyncio.sleep(0.2)
            steps.append("rolled back")
            raise

    timer = interrupt_after(0.2)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(work())
    timer.join()
    assert steps == ["cancelled", "rolled back"]
    assert time.monotonic() - started < 3
    assert run(where()) == "nbrag-loop"


def test_an_interrupt_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(background, "_GRACE", 0.3)
    release = threading.Event()

    async def stubborn():
        while not release.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue

    timer = interrupt_after(0.1)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(stubborn())
    release.set()
    timer.join()
    assert time.monotonic() - started < 2


def test_a_failing_callback_cancels_the_work():
    ended = threading.Event()

    async def work():
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(work(), on_wait=fail)
    assert ended.is_set()


async def test_cancelling_a_forwarded_call_cancels_the_work():
    begun, ended = threading.Event(), threading.Event()

    async def work():
        begun.set()
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()

    task = asyncio.ensure_future(on_loop(work()))
    assert await asyncio.to_thread(begun.wait, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 2)


def test_the_loop_outlives_an_exit_inside_it():
    async def leave():
        sys.exit(3)

    with pytest.raises(SystemExit):
        run(leave())
    assert run(where()) == "nbrag-loop"


FORK = """
import os
from nbrag.background import run
async def answer():
    return 42
assert run(answer()) == 42
child = os.fork()
if child == 0:
    os._exit(0 if run(answer()) == 42 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_has_its_own_loop():
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.strip() == "0"
