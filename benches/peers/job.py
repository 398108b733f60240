"""What the Python contenders share: the step, and the door that a run is started at."""

import json
import os

import aiohttp
from aiohttp import web

STEPS = 10
TOOL = os.environ["TOOL"]

_session = None


async def step(run: str, index: int) -> str:
    """One step: one GET, over connections that are kept."""
    global _session
    if _session is None:
        _session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60))
    async with _session.get(f"{TOOL}/call/{run}/{index}") as answer:
        answer.raise_for_status()
        return await answer.text()


async def serve(start):
    """Serves `POST /run`, which answers when `start(id)` has ended; prints its address first."""

    async def run(request: web.Request) -> web.Response:
        return web.Response(text=str(await start((await request.json())["run"])))

    app = web.Application()
    app.router.add_post("/run", run)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    print(json.dumps({"listen": f"{host}:{port}"}), flush=True)
