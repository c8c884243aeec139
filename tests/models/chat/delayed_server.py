"""An OpenAI-compatible chat server in a process of its own, which answers after a while.

``python delayed_server.py SECONDS [ANSWER]`` prints its port and serves until its input ends, so
that it goes away with whoever started it. It answers with what it was told last, or always with
ANSWER. GET answers with the number of chat calls so far.
"""

from __future__ import annotations

import asyncio
import json
import sys


async def main(delay: float, said: str | None = None) -> None:
    calls = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                fields = (line.partition(":") for line in lines[1:] if line)
                headers = {name.lower(): value.strip() for name, _, value in fields}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                answer = {"calls": calls}
                if lines[0].startswith("POST"):
                    calls += 1
                    await asyncio.sleep(delay)
                    request = json.loads(body)
                    content = said or request["messages"][-1]["content"]
                    words = {"role": "assistant", "content": content}
                    answer = {
                        "id": "chat-1",
                        "object": "chat.completion",
                        "created": 0,
                        "model": request["model"],
                        "choices": [{"index": 0, "message": words, "finish_reason": "stop"}],
                        "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
                    }
                data = json.dumps(answer).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    + f"Content-Length: {len(data)}\r\n\r\n".encode()
                    + data
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=512)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), *sys.argv[2:3]))
