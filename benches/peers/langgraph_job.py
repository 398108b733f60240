"""The job as a LangGraph graph of ten nodes in a row; each checkpoint is in PostgreSQL before the next node begins."""

import asyncio
import os
from typing import TypedDict

import uvloop
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

import job

# One saver lets one statement out at a time; several share the pool. More than its documentation shows, and fairer.
SAVERS = 8


class State(TypedDict):
    run: str
    last: str


def node(index: int):
    async def call(state: State) -> dict:
        return {"last": await job.step(state["run"], index)}

    return call


def graph(saver: AsyncPostgresSaver):
    built = StateGraph(State)
    names = [f"step{index}" for index in range(job.STEPS)]
    for index, name in enumerate(names):
        built.add_node(name, node(index))
    for before, after in zip([START, *names], [*names, END]):
        built.add_edge(before, after)
    return built.compile(checkpointer=saver)


async def main() -> None:
    connection = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool = AsyncConnectionPool(os.environ["JOB_DATABASE"], min_size=4, max_size=20, open=False, kwargs=connection)
    await pool.open()
    savers = [AsyncPostgresSaver(pool) for _ in range(SAVERS)]
    await savers[0].setup()
    graphs = [graph(saver) for saver in savers]
    started = 0

    async def start(run: str) -> int:
        nonlocal started
        started += 1
        config = {"configurable": {"thread_id": run}}
        state = await graphs[started % SAVERS].ainvoke({"run": run, "last": ""}, config, durability="sync")
        return len(state["last"])

    await job.serve(start)
    await asyncio.Event().wait()


uvloop.run(main())
